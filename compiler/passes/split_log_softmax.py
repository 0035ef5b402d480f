"""Writes log-softmax as what it is made of, so that its rows' two numbers outlive it and not its elements.

    y = _log_softmax(x, d)   ->   m = amax(x, d); l = log(sum(exp(x - m), d)); y = (x - m) - l

A loss reads one element of each row: it computes that one from `x`, `m` and `l`, and the tensor of all logarithms is
never stored. The same arithmetic as the operator's own lowering has, in float32 for the half types; ATen's kernel sums
in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from compiler.ir.roles import Program
from compiler.ir.strides import hint, is_known

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
    source, _, half_to_float = node.args
    value = source.meta["val"]  # type: ignore[union-attr]
    if half_to_float or value.device.type != "cpu" or value.dtype not in DTYPES:
        return False
    if not all(is_known(size) and hint(size) for size in value.shape):
        return False
    return value.dim() > 0 and _text(value.stride()) == _text(node.meta["val"].stride())


def _text(steps: tuple[Any, ...]) -> list[str]:
    """Strides to be compared with nothing guarded on."""
    return [str(step) for step in steps]


def _split(node: fx.Node) -> None:
    x, dim, _ = node.args
    made: Any = x
    with node.graph.inserting_before(node):
        if x.meta["val"].dtype in HALF_DTYPES:  # type: ignore[union-attr]
            made = _call(aten._to_copy.default, made, dtype=torch.float32)
        peak = _call(aten.amax.default, made, [dim], True)
        total = _call(aten.sum.dim_IntList, _call(aten.exp.default, _call(aten.sub.Tensor, made, peak)), [dim], True)
        shifted = _call(aten.sub.Tensor, made, peak)  # a second one: each has one reader, and is computed there
        result = _call(aten.sub.Tensor, shifted, _call(aten.log.default, total))
        if x.meta["val"].dtype in HALF_DTYPES:  # type: ignore[union-attr]
            result = _call(aten._to_copy.default, result, dtype=x.meta["val"].dtype)  # type: ignore[union-attr]
    name = node.name
    result.meta.update({key: value for key, value in node.meta.items() if key != "val"})
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)
    result.name = name


def _call(target: Callable[..., Any], first: fx.Node, *args: Any, **kwargs: Any) -> fx.Node:
    made = first.graph.call_function(target, (first, *args), kwargs)
    values = [argument.meta["val"] if isinstance(argument, fx.Node) else argument for argument in (first, *args)]
    with values[0].fake_mode:
        made.meta["val"] = target(*values, **kwargs)
    return made
