"""Programs that use one part of the language each, with the bar that each is held to: `assay bench language`."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing._internal.two_tensor import TwoTensor

from assay.harness.bench.language import Figure, Subject

CHAIN = 10


def numbers(device: str) -> Tensor:
    return torch.randn(1024, 1024, device=device)


def scaled_chain(x: Tensor, scale: float) -> Tensor:
    for step in range(CHAIN):
        x = torch.tanh(x * scale + step)
    return x


def changed_float(device: str) -> Subject:
    """A factor that is another Python float in each call, as a learning rate or a temperature is."""
    x = numbers(device)
    return Subject(scaled_chain, tuple((x, 0.5 + 0.125 * step) for step in range(8)))


def chain_around_a_maximum(as_number: bool, device: str) -> Subject:
    """A chain that is scaled by its own maximum, as a Python number or as a tensor."""

    def f(x: Tensor) -> Tensor:
        y = scaled_chain(x, 0.5)
        largest = y.amax()
        return scaled_chain(y / (largest.item() if as_number else largest), 0.5)

    return Subject(f, ((numbers(device),),))


class Layer(nn.Module):
    """A block of attention and two products, with a name of its own in no graph: all layers are one region."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        return x + self.out(F.gelu(F.scaled_dot_product_attention(q, k, v)))


def layers(count: int, device: str) -> Subject:
    """Equal layers, each a region that is compiled once."""
    model = nn.Sequential(*(Layer() for _ in range(count))).to(device)
    return Subject(model, ((torch.randn(2, 16, 64, device=device),),), trains=True)


def causal(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return row >= column


def attention(length: int, device: str) -> Subject:
    """Causal attention by `flex_attention`, with scores that fall with the distance."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(1, 8, length, 64, device=device, dtype=dtype) for _ in range(3))
    blocks = create_block_mask(causal, None, None, length, length, device=device)

    def farther_is_less(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return score + (column - row) * 0.01

    def f(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=farther_is_less, block_mask=blocks)

    return Subject(f, ((q, k, v),))


def int8_linear(rows: int, device: str) -> Subject:
    """A linear layer whose weight is kept in eight bits with a scale for each output, as torchao keeps it."""
    width = 4096 if device == "cuda" else 2048
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weight = torch.randint(-128, 128, (width, width), dtype=torch.int8, device=device)
    scale = torch.rand(width, device=device, dtype=dtype) / 128 / width**0.5
    x = torch.randn(rows, width, device=device, dtype=dtype)

    def f(x: Tensor) -> Tensor:
        return F.linear(x, weight.to(x.dtype)) * scale

    return Subject(f, ((x,),))


def sum_of_eight(*values: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c, d, e, f, g, h = values
    return a + b + c + d, e + f + g + h


def sum_of_four(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a + b + c + d


def four_wrappers(device: str) -> Subject:
    """A sum of four tensors that hold two each."""
    inputs = tuple(TwoTensor(torch.randn(8, device=device), torch.randn(8, device=device)) for _ in range(4))
    return Subject(sum_of_four, (inputs,))


def their_inner_tensors(device: str) -> Subject:
    """The same sums of the eight tensors themselves."""
    return Subject(sum_of_eight, (tuple(torch.randn(8, device=device) for _ in range(8)),))


def decode(layers: int, width: int, device: str) -> Subject:
    """One token of a Llama in bfloat16, with a cache of fixed size that is written in place. The cache is told where
    the token belongs, so that a step may be taken as often as one likes."""
    library: Any = importlib.import_module("transformers")  # a part of the zoo, which need not be installed
    config = library.LlamaConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 256, vocab_size=32000, max_position_embeddings=1024,
    )  # fmt: skip
    with torch.device(device):
        model = library.LlamaForCausalLM(config).eval().bfloat16()
    cache = library.StaticCache(config=config, max_cache_len=512)
    token = torch.tensor([[7]], device=device)

    def f(token: Tensor, position: Tensor) -> Tensor:
        for layer in cache.layers:
            if layer.is_initialized:
                layer.cumulative_length.copy_(position[0])
        return model(token, past_key_values=cache, position_ids=position[None]).logits  # type: ignore[no-any-return]

    with torch.no_grad():
        f(token, torch.tensor([0], device=device))  # the cache makes its tensors at the first token
    places = tuple(torch.tensor([at], device=device) for at in range(1, 9))
    return Subject(f, tuple((token, place) for place in places), is_recorded=True)


def state_space(length: int, trains: bool, device: str) -> Subject:
    """A state-space model of 64 channels with 16 numbers each, as Mamba's are: a scan whose steps are small. In
    training a row is read from the state before it, as Inductor refuses one that is read from the new state
    (`suites/upstream_bugs/scan_saves_a_state.py`)."""
    channels, states = 64, 16
    shapes = (
        (length, channels, 1),
        (length, channels, 1),
        (channels, states),
        (length, 1, states),
        (length, 1, states),
    )
    inputs = tuple(torch.rand(shape, device=device).requires_grad_(trains) for shape in shapes)

    def f(xs: Tensor, deltas: Tensor, decay: Tensor, into: Tensor, out: Tensor) -> Tensor:
        def step(state: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            x, delta, b, c = row
            new = torch.exp(delta * -decay) * state + delta * x * b
            return new, ((state if trains else new) * c).sum(-1, keepdim=True)

        _, rows = scan(step, torch.zeros(channels, states, device=device), (xs, deltas, into, out))
        return rows  # type: ignore[no-any-return]

    return Subject(f, (inputs,), trains=trains)


SCALARS = {"capture_scalar_outputs": True}
"""Inductor's scan counts its steps by a tensor that it reads."""
FIGURES = (
    Figure("changed_float", "beside", 1.0, changed_float),
    Figure(
        "one_item", "over", 1.2, functools.partial(chain_around_a_maximum, True),
        functools.partial(chain_around_a_maximum, False), config=SCALARS,
    ),
    Figure("equal_regions", "first_call", 1.5, functools.partial(layers, 48), functools.partial(layers, 4)),
    Figure("flex_attention", "beside", 1.0, functools.partial(attention, 1024), devices=("cpu",)),
    Figure("flex_attention_4096", "beside", 1.0, functools.partial(attention, 4096), devices=("cuda",)),
    Figure("int8_linear_1", "beside", 1.0, functools.partial(int8_linear, 1)),
    Figure("int8_linear_32", "beside", 1.0, functools.partial(int8_linear, 32)),
    Figure("subclass_call", "an_input", 5.0, four_wrappers, their_inner_tensors, inputs=4),
    Figure("scan", "beside", 1.0, functools.partial(state_space, 1024, False), devices=("cpu",), config=SCALARS),
    Figure("scan_train", "beside", 1.0, functools.partial(state_space, 1024, True), devices=("cpu",), config=SCALARS),
    Figure("decode", "beside", 1.0, functools.partial(decode, 4, 512), devices=("cpu",)),
    Figure("decode_2048", "beside", 1.0, functools.partial(decode, 16, 2048), devices=("cuda",)),
)  # fmt: skip
