"""Writes log-softmax as what it is made of, so that its rows' two numbers outlive it and not its elements.

    y = _log_softmax(x, d)   ->   m = amax(x, d); l = log(sum(exp(x - m), d)); y = (x - m) - l

A loss reads one element of each row: it computes that one from `x`, `m` and `l`, and the tensor of all logarithms is
never stored. The same arithmetic as the operator's own lowering has, in float32 for the half types; ATen's kernel sums
in another order. On a GPU autocast has halves come out as float32, and then `x` is what is kept, in half the memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import hint, is_known, rows_of
from assay.compiler.ir.typed_nodes import fake_value, node_argument

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALF_DTYPES = (torch.float16, torch.bfloat16)


def split_log_softmax(program: Program) -> int:
    """Returns the number of calls split."""
    found = [node for node in program.module.graph.nodes if node.target is aten._log_softmax.default]
    chosen = [node for node in found if _is_splittable(node)]
    for node in chosen:
        _split(node)
    return len(chosen)


def _is_splittable(node: fx.Node) -> bool:
    value = fake_value(node_argument(node, 0))
    if value.device.type not in ("cpu", "cuda") or value.dtype not in DTYPES:
        return False
    if not all(is_known(size) and hint(size) for size in value.shape):
        return False
    return value.dim() > 0 and (_lies_alike(node) or _is_in_rows(node.meta["val"]))


def _lies_alike(node: fx.Node) -> bool:
    """Whether the logarithms lie in memory as what they are of, as arithmetic on that does."""
    return _text(fake_value(node_argument(node, 0)).stride()) == _text(fake_value(node).stride())


def _is_in_rows(value: torch.Tensor) -> bool:
    return _text(value.stride()) == _text(rows_of(value.shape))


def _text(steps: tuple[Any, ...]) -> list[str]:
    """Strides to be compared with nothing guarded on."""
    return [str(step) for step in steps]


def _split(node: fx.Node) -> None:
    made, dim = node_argument(node, 0), node.args[1]
    dtype, wanted = fake_value(made).dtype, fake_value(node).dtype
    with node.graph.inserting_before(node):
        if dtype in HALF_DTYPES:
            made = call_for(node, aten._to_copy.default, made, dtype=torch.float32)
        peak = call_for(node, aten.amax.default, made, [dim], True)
        powers = call_for(node, aten.exp.default, call_for(node, aten.sub.Tensor, made, peak))
        total = call_for(node, aten.sum.dim_IntList, powers, [dim], True)
        shifted = call_for(node, aten.sub.Tensor, made, peak)  # a second one, computed where its one reader is
        result = call_for(node, aten.sub.Tensor, shifted, call_for(node, aten.log.default, total))
        if wanted in HALF_DTYPES:
            result = call_for(node, aten._to_copy.default, result, dtype=wanted)
        if not _lies_alike(node):
            result = call_for(node, aten.clone.default, result, memory_format=torch.contiguous_format)
    put_in_place(result, node)
