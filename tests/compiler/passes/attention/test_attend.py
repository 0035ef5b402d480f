"""Attention written out by hand: the library computes it, and nobody can tell but by the clock."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from assay.compiler.entry import dynamo as fx
from assay.compiler.ir.graph.roles import Program, Signature, Tangent, UserOutput
from assay.compiler.kernels import attend as attention
from assay.compiler.passes import CHOICES, PASSES
from assay.compiler.passes.attention.attend import attend
from assay.harness.case import case
from assay.harness.protocol.acts import steps
from assay.harness.run import RunRequest, run_case
from tests.stated_numbers import state

Attention = Callable[[Tensor, Tensor, Tensor], object]
B, H, S, T, D = 2, 4, 24, 48, 16
MODULE = importlib.import_module("assay.compiler.passes.attention.attend")
LOWEST = torch.finfo(torch.float32).min


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many attentions the pass rewrote, by program, from 16 KB of scores on."""
    found: list[int] = []
    least = 1 << 14
    state(monkeypatch, attention_bytes=least, library_attention_bytes=least, trained_attention_bytes=least)

    def run(program: Program) -> int:
        found.append(attend(program))
        return found[-1]

    steps = tuple(type(step)(run, step.kind) if step.run is attend else step for step in CHOICES)
    monkeypatch.setattr(fx, "CHOICES", steps)
    return found


def operands(dtype: torch.dtype = torch.float32, depth: int = D) -> list[Tensor]:
    """Heads as a projection leaves them: those of a position lie together."""
    generator = torch.Generator().manual_seed(0)
    sizes = (S, T, T)
    return [torch.randn(B, n, H, depth, generator=generator).to(dtype).transpose(1, 2) for n in sizes]


def causal() -> Tensor:
    """True where a query may not look."""
    return torch.ones(S, T, dtype=torch.bool).triu(T - S + 1)


def padding() -> Tensor:
    return (torch.arange(T) >= torch.tensor([T, T - 9])[:, None])[:, None, None]


def joined(o: Tensor) -> Tensor:
    return o.transpose(1, 2).reshape(o.shape[0], o.shape[2], -1)


# ---- as models write it


def bert(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(D) + padding() * LOWEST
    return joined(torch.matmul(F.dropout(F.softmax(scores, dim=-1), 0.1, training=False), v))


def gpt2(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = scores / torch.full([], D**0.5, dtype=scores.dtype)
    scores = torch.where(~causal(), scores, torch.full([], LOWEST, dtype=scores.dtype))
    return torch.matmul(F.softmax(scores + padding() * -1e9, dim=-1), v)


def llama(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two heads of keys for four of queries."""
    k, v = (x[:, :2, None].expand(B, 2, 2, T, D).reshape(B, 4, T, D) for x in (k, v))
    scores = torch.matmul(q, k.transpose(2, 3)) * D**-0.5 + torch.where(causal(), LOWEST, 0.0)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def t5(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No factor, and a bias by distance and head whose last dimension has gaps."""
    bias = torch.linspace(-2, 2, S * T * H).view(S, T, H).permute(2, 0, 1)[None]
    scores = torch.matmul(q, k.transpose(3, 2)) + (bias + padding() * LOWEST)
    return joined(torch.matmul(F.softmax(scores.float(), dim=-1).type_as(scores), v))


def vit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return joined((q @ k.mT * D**-0.5).softmax(-1) @ v)


def hidden_by_infinity(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q * 0.25) @ k.transpose(-2, -1)).mul(0.25).masked_fill(causal(), -math.inf).softmax(-1) @ v


def in_three_dimensions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.reshape(B * H, -1, D) for x in (q, k, v))
    scores = torch.bmm(q * D**-0.5, k.transpose(1, 2)).masked_fill_(causal(), -math.inf)
    return torch.bmm(torch.softmax(scores, -1), v)


def in_three_dimensions_but_for_the_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.reshape(B * H, -1, D) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, S, T) + padding() * LOWEST
    return torch.bmm(torch.softmax(scores.view(B * H, S, T), -1), v).view(B, H, S, D)


def keys_given_transposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(q @ k.transpose(1, 2).contiguous().permute(0, 2, 3, 1), -1) @ v).permute(0, 2, 1, 3)


PATTERNS: list[Attention] = [
    bert,
    gpt2,
    llama,
    t5,
    vit,
    hidden_by_infinity,
    in_three_dimensions,
    in_three_dimensions_but_for_the_mask,
    keys_given_transposed,
]


class All(nn.Module):
    """Several attentions over heads that are computed, as they are in a model; no two of the same queries."""

    def __init__(self, patterns: list[Attention]) -> None:
        super().__init__()
        self.patterns = patterns

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> list[object]:
        return [pattern(q * (1 + n / 8), k * 1.25, v * 1.25) for n, pattern in enumerate(self.patterns)]


def assert_same(patterns: list[Attention], mode: str, inputs: list[Tensor], backend: str = "assay") -> None:
    def made() -> tuple[nn.Module, tuple[Tensor, ...], dict[str, object]]:
        leaves = (x.clone().requires_grad_(mode == "train") for x in inputs)
        return All(patterns), tuple(leaves), {}

    result = run_case(case()(made), mode, backend, RunRequest(timed=False, protocol=steps(mode, 2), quick=True))
    assert result.verdict == "same", (result.detail, result.differences)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_attend_computes_what_models_write(counts: list[int], mode: str) -> None:
    assert_same(PATTERNS, mode, operands())
    assert counts == [len(PATTERNS)]


def test_attend_computes_for_symbolic_sizes(counts: list[int]) -> None:
    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return joined((q @ k.transpose(-1, -2) * 0.25).softmax(-1) @ v)

    def hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return joined((q @ k.mT).mul(0.25).masked_fill(causal(), -math.inf).softmax(-1) @ v)

    assert_same([plain, hidden], "train", operands(), "assay,dynamic")
    assert counts == [2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_attend_leaves_other_dtypes(counts: list[int], dtype: torch.dtype) -> None:
    assert_same([vit], "infer", operands(dtype))
    assert counts == [0]


def test_attend_leaves_scores_that_fit_the_caches() -> None:
    """Scores of 16, 32 and 64 MB for ATen's kernel; of half a megabyte, one, 32 and 64 for ours."""
    sizes = [(4, 1024, 8, (0, 0)), (8, 1024, 8, (1, 0)), (16, 1024, 8, (1, 1))]
    sizes += [(2, 256, 16, (0, 0)), (4, 256, 16, (1, 0)), (8, 1024, 16, (1, 0)), (16, 1024, 16, (1, 1))]
    for heads, length, depth, expected in sizes:
        inputs = [torch.empty(1, heads, length, depth, device="meta") for _ in range(3)]
        assert tuple(rewritten(inputs, is_training) for is_training in (False, True)) == expected


def rewritten(inputs: list[Tensor], is_training: bool) -> int:
    """How many attentions of a graph, with or without its derivative, the pass rewrites at its own bounds."""

    def program(*given: Tensor) -> list[Tensor]:
        result = (given[0] @ given[1].mT).softmax(-1) @ given[2]
        return [result, *(torch.autograd.grad(result, given, given[0]) if is_training else ())]

    with FakeTensorMode() as mode:
        fakes = [torch.empty(x.shape, requires_grad=is_training) for x in inputs]
        assert all(fake.fake_mode is mode for fake in fakes)  # type: ignore[attr-defined]
        module = make_fx(program)(*fakes)
    joint = Program(module, Signature((Tangent(UserOutput(0)),) if is_training else (), ()))
    for step in PASSES:
        step.run(joint)
    return attend(joint)


# ---- near misses


def over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-2) @ v


def with_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def with_scores(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    return scores.softmax(-1) @ v, scores.amax(-1)


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout((q @ k.mT).softmax(-1), 0.5) @ v


def scaled_after_the_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT + torch.where(causal(), -3.0, 0.0)) * 0.25).softmax(-1) @ v


def scaled_by_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * torch.linspace(0.1, 1, S)[:, None]).softmax(-1) @ v


def hidden_behind_a_score(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).masked_fill(causal(), -3.0).softmax(-1) @ v


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(q @ k.mT).softmax(-1) @ v


def narrower_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v[..., :8]


def five_dimensions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q[None] @ k[None].mT).softmax(-1) @ v[None]


def masked_in_windows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.linspace(-1, 1, S * T).view(1, S, T).repeat(2, 1, 1)[:, None]
    scores = (q @ k.mT).view(1, B, H, S, T) + mask
    return scores.view(B, H, S, T).softmax(-1) @ v


def rounded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).bfloat16().softmax(-1).float() @ v


def widened_to_double(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1, torch.float64).to(q.dtype) @ v


def tiny(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q[..., :4, :] @ k.mT[..., :8]).softmax(-1) @ v[..., :8, :]


NEAR_MISSES: list[Attention] = [
    over_queries,
    with_weights,
    with_scores,
    scaled_after_the_mask,
    scaled_by_query,
    hidden_behind_a_score,
    capped,
    narrower_values,
    five_dimensions,
    masked_in_windows,
    widened_to_double,
    tiny,
]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_attend_leaves_what_only_looks_alike(counts: list[int], mode: str) -> None:
    assert_same(NEAR_MISSES, mode, operands())
    assert counts == [0]


def test_attend_leaves_dropout_lower_precision_and_what_derives_a_bias(counts: list[int]) -> None:
    bias = torch.zeros(H, S, T, requires_grad=True)

    def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT + bias).softmax(-1) @ v

    for pattern in (dropped, rounded, biased):
        torch._dynamo.reset()
        q, k, v = (x.clone().requires_grad_() for x in operands())
        results = [f(q, k, v) for f in (torch.compile(pattern, backend="assay"), pattern)]
    found, expected = (torch.autograd.grad(o.square().sum(), (q, k, v, bias)) for o in results)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert counts == [0, 0, 0]


# ---- what a user may see besides


def test_attend_gives_results_a_user_may_change(counts: list[int]) -> None:
    """The result, and operands that the user has: eager's products read copies of these."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return joined((q @ k.mT * 0.25).softmax(-1) @ v)

    gradients = []
    for f in (program, torch.compile(program, backend="assay")):
        leaves = [x.clone().requires_grad_() for x in operands()]
        given = [x * 1 for x in leaves]
        result = f(*given)
        with torch.no_grad():
            for changed in (result, *given):
                changed.mul_(3)
        gradients.append(torch.autograd.grad(result.square().sum(), leaves))
    torch.testing.assert_close(*gradients)
    assert counts == [1]


# ---- not a number, infinity, hidden rows


def written(q: Tensor, k: Tensor, v: Tensor, terms: list[Tensor], fills: list[float], scale: float = 0.25) -> Tensor:
    scores = q @ k.transpose(-1, -2) * scale
    following = iter(fills)
    for term in terms:
        scores = scores.masked_fill(term, next(following)) if term.dtype is torch.bool else scores + term
    return scores.softmax(-1) @ v


def both(
    inputs: list[Tensor], terms: list[Tensor], fills: list[float], limit: float = 512.0, factor: float = 1.0
) -> tuple[list[Tensor], list[Tensor], bool]:
    """What is written and what we compute, with the gradients; and whether the library's result was trusted."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    result = written(*leaves, terms, fills)  # type: ignore[arg-type]
    gradient = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result.dtype) * factor
    expected = [result.detach(), *torch.autograd.grad(result, leaves, gradient)]
    parts = [t if t.dtype is not torch.bool else torch.zeros(t.shape).masked_fill(t, -math.inf) for t in terms]
    mask = sum(parts[1:], parts[0]) if parts else None
    out, logs = attention.attend(*inputs, mask, terms, fills, 0.25, limit)
    found = attention.attend_backward(gradient, *inputs, out, logs, mask, terms, fills, 0.25)
    return expected, [out, *found], not logs.isnan().any()


def at(position: int, value: float, is_all: bool = False) -> Callable[[list[Tensor]], None]:
    def change(inputs: list[Tensor]) -> None:
        x = inputs[position]
        x[0, 1, min(3, x.shape[2] - 1), slice(None) if is_all else 2] = value

    return change


SPECIAL = {
    f"{'qkv'[position]} {value}{' row' * is_all}": at(position, value, is_all)
    for position, value, is_all in itertools.product(range(3), (math.nan, math.inf, -math.inf), (False, True))
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("sizes", [(16, 16), (5, 7), (3, 513), (40, 3), (200, 33)], ids=str)
def test_attend_keeps_what_is_not_finite(name: str, sizes: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 2, n, 8, generator=generator) for n in (sizes[0], sizes[1], sizes[1])]
    SPECIAL[name](inputs)
    expected, found, _ = both(inputs, [], [])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_attend_finds_keys_that_are_not_a_number_by_the_block() -> None:
    """The kernel goes over keys in blocks of 512, and forgets a block in which it finds no maximum."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 1, n, 8, generator=generator) for n in (16, 1030, 1030)]
    masks = [torch.zeros(16, 1030), torch.zeros(16, 1030)]
    masks[0][3, :512] = math.nan
    masks[1][3, :512], masks[1][3, 1024:] = -math.inf, math.nan
    for mask in masks:
        expected, found, is_trusted = both(inputs, [mask], [])
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert not is_trusted
    inputs[1][0, 0, :512] = math.nan
    expected, found, _ = both(inputs, [], [])
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("fill", [-math.inf, LOWEST, -1e9, -10000.0])
@pytest.mark.parametrize("is_added", [False, True])
def test_attend_keeps_rows_that_are_hidden_wholly(fill: float, is_added: bool) -> None:
    hidden = torch.ones(16, 16, dtype=torch.bool).triu(1)
    terms: list[Tensor] = [torch.zeros(16, 16).masked_fill(hidden, fill)] if is_added else [hidden]
    inputs = [torch.randn(2, 2, 16, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    expected, found, is_trusted = both(inputs, terms, [] if is_added else [fill])
    torch.testing.assert_close(found, expected)
    assert is_trusted, "no row is hidden wholly"
    terms[0][5] = fill if is_added else True
    expected, found, is_trusted = both(inputs, terms, [] if is_added else [fill])
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert not is_trusted


def test_attend_infers_through_the_library_where_rows_are_hidden_by_the_lowest_number() -> None:
    """As a decoder's rows of padding are: all scores of a row are the same number, and so are their weights."""
    inputs = [torch.randn(2, 2, 16, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    mask = torch.zeros(16, 16)
    mask[:5] = LOWEST
    out, logs = attention.attend(*inputs, mask, [mask], [], 0.25, math.inf)
    torch.testing.assert_close(out, written(*inputs, [mask], []))  # type: ignore[arg-type]
    assert not logs.isnan().any()


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 1e-30, 1e30])
def test_attend_keeps_gradients_that_are_not_finite(value: float) -> None:
    inputs = [torch.randn(2, 2, 16, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    expected, found, is_trusted = both(inputs, [], [], factor=value)
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=1e-4, atol=abs(value) * 1e-5 if value < 1e31 else 0
    )
    assert is_trusted


def test_attend_compiled_keeps_not_a_number(counts: list[int]) -> None:
    inputs = operands()
    inputs[0][0, 0, 3] = math.nan
    inputs[1][1, 2, 5, 0] = math.inf
    assert_same([vit, hidden_by_infinity], "train", inputs)
    assert counts == [2]
