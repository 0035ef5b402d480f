"""Branches within the steps of a loop that is one call: both are computed, and each element is chosen.

    cond(p, f, g, (x,))    ->    where(p, f(where(p, x, x.detach())), g(where(p, x.detach(), x)))

That is exact where a branch computes elements alone, and refuses none of them. Each branch is given its operands with
a gradient that is chosen too: what the branch that is not taken makes of a gradient of zeros may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.trace import has_effect, is_random
from assay.compiler.ir.tensors.value_checks import may_refuse
from assay.compiler.ops import kind_of
from assay.compiler.ops.registry import Kind

OF_ELEMENTS = (Kind.pointwise, Kind.view, Kind.creation, Kind.reduction)


def select_branch(
    interpret: Callable[..., Any],
    predicate: Any,
    first: fx.GraphModule,
    second: fx.GraphModule,
    operands: Sequence[Any] = (),
) -> Any:
    """What a branch gives, recorded by computing both; `interpret(graph, *operands)` records one.

    Raises: Unsupported for branches that compute more than elements, or whose results are of two kinds.
    """
    if not isinstance(predicate, torch.Tensor):
        return interpret(first if predicate else second, *operands)
    holds = predicate.reshape(()).to(torch.bool)
    sides = [[_given_if(holds, value, is_taken) for value in operands] for is_taken in (True, False)]
    mode = get_proxy_mode()
    assert mode is not None
    last = mode.tracer.graph._root.prev
    taken, structure = pytree.tree_flatten(interpret(first, *sides[0]))
    others, _ = pytree.tree_flatten(interpret(second, *sides[1]))
    if not all(map(_computes_elements, _behind(last))):
        raise Unsupported("a step holds a branch that does more than compute elements")
    chosen = [_chosen(holds, one, other) for one, other in zip(taken, others, strict=True)]
    return pytree.tree_unflatten(chosen, structure)


def _given_if(holds: torch.Tensor, value: Any, is_taken: bool) -> Any:
    """An operand of a branch, whose gradient is one of zeros where the branch is not taken."""
    if not isinstance(value, torch.Tensor) or not (torch.is_grad_enabled() and value.requires_grad):
        return value
    return torch.where(holds, *((value, value.detach()) if is_taken else (value.detach(), value)))


def _behind(last: fx.Node) -> Iterator[fx.Node]:
    node = last.next
    while node.op != "root":
        yield node
        node = node.next


def _computes_elements(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return False
    return kind_of(node.target) in OF_ELEMENTS and not (has_effect(node) or is_random(node) or may_refuse(node))


def _chosen(holds: torch.Tensor, one: Any, other: Any) -> Any:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise Unsupported("a step holds a branch that gives more than tensors")
    if (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride()):
        raise Unsupported("a step holds a branch that gives tensors of two kinds")
    return torch.where(holds, one, other)
