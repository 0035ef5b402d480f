"""One step of training over several processes, in each way to share the work.

    ddp       each process has the whole model; gradients are averaged in buckets
    fsdp      each process has a part of each parameter; a layer's are gathered before it runs, and freed after it
    tensor    each process has some columns or rows of each weight, and some of the heads

The model is Llama's, of random weights. Its layers are compiled one by one, as their authors say to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

from assay.harness.backends.registry import resolve

WAYS = ("ddp", "fsdp", "tensor")


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model and its batch. `vocabulary` words, `layers` of `width` numbers; `batch` rows of `length` words. `narrow`
    is the dtype that FSDP computes in, None for that of the parameters."""

    layers: int = 2
    width: int = 32
    heads: int = 4
    vocabulary: int = 64
    batch: int = 2
    length: int = 8
    narrow: torch.dtype | None = None


TINY = Sizes()
LARGE = Sizes(layers=12, width=1024, heads=16, vocabulary=32000, batch=8, length=1024, narrow=torch.bfloat16)


def model_of(sizes: Sizes) -> nn.Module:
    config = LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        intermediate_size=4 * sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=sizes.length,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def shared(model: nn.Module, way: str, backend: str, mesh: DeviceMesh, narrow: torch.dtype | None = None) -> nn.Module:
    """The model with its layers compiled on `backend`, its work shared in one of `WAYS`; FSDP computes in `narrow`.

    Raises: ValueError for a way that there is not.
    """
    if way not in WAYS:
        raise ValueError(f"distributed: there is no way {way!r}; the ways are {', '.join(WAYS)}")
    layers: nn.ModuleList = model.model.layers  # type: ignore[assignment, union-attr]
    if way == "tensor":
        for layer in layers:
            parallelize_module(layer, mesh, _columns_and_rows())
    for layer in layers:
        _compile(layer, backend)
    if way == "fsdp":
        policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32)
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    return DistributedDataParallel(model) if way == "ddp" else model


def _compile(layer: nn.Module, backend: str) -> None:
    """As `layer.compile` does, by a backend's name as the harness reads it."""
    if backend != "eager":
        layer._compiled_call_impl = resolve(backend).wrap(layer._call_impl)  # type: ignore[assignment]


def _columns_and_rows() -> dict[str, Any]:
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    return {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}


def step_of(model: nn.Module, words: Tensor) -> Callable[[], Tensor]:
    """A step without an optimizer: the loss, whose gradients are in the parameters."""

    def step() -> Tensor:
        model.zero_grad()
        loss: Tensor = model(input_ids=words, labels=words).loss
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


def gradients_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What this process has of each gradient."""
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if gradient is not None:
            yield name, gradient.to_local() if hasattr(gradient, "to_local") else gradient


def begin(device: str) -> DeviceMesh:
    """Joins the processes, which the environment names as torchrun does."""
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return init_device_mesh(device, (dist.get_world_size(),))


def prepared(way: str, backend: str, sizes: Sizes, device: str, mesh: DeviceMesh) -> tuple[nn.Module, Tensor]:
    """A model, alike in all processes, and this process's words."""
    torch.manual_seed(0)
    model = shared(model_of(sizes).to(device), way, backend, mesh, sizes.narrow)
    torch.manual_seed(1 if way == "tensor" else 1 + dist.get_rank())
    return model, torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length), device=device)
