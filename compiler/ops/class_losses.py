"""The loss of a class chosen by data: `-x[n, target[n]] * weight[target[n]]`, summed or averaged by the weights.

A target that is ignored reads nothing; any other out of range fails as in eager, with an IndexError, which torch's
decomposition through `gather` makes a RuntimeError of.
"""

from __future__ import annotations

import torch

from compiler.ir.index import ONE, ZERO, Index, Symbol
from compiler.ir.loops import Expr, Loop, Reduce
from compiler.ir.lowered import Tensor, coordinates
from compiler.ir.rewrite import call, constant, convert, widened
from compiler.ops.lookup import bound, checked
from compiler.ops.losses import Reduction, reduction_of
from compiler.ops.registry import Declined, Kind, Operation, Result, element, rule


def _terms(operation: Operation, at: tuple[Index, ...], dtype: torch.dtype) -> tuple[Expr, Expr]:
    """The loss of one target, and its weight; both 0 where it is ignored."""
    x, target = operation.tensor("self"), operation.tensor("target")
    if ZERO in (*x.shape, *target.shape):
        raise Declined("nothing to choose from")
    zero, chosen = constant(0, dtype), element(target, at, torch.int64)
    is_ignored = call("eq", chosen, constant(int(operation.number("ignore_index")), torch.int64))
    safe = call("where", is_ignored, constant(0, torch.int64), chosen, dtype=torch.int64)
    position = checked(safe, x.shape[-1], "target", wraps=False)
    one = constant(1, dtype)
    weight = one if operation["weight"] is None else _picked(operation, operation.tensor("weight"), (), position)
    loss = call("neg", call("mul", _picked(operation, x, at, position), weight))
    return tuple(call("where", is_ignored, zero, term, dtype=dtype) for term in (loss, weight))  # type: ignore[return-value]


def _picked(operation: Operation, source: Tensor, at: tuple[Index, ...], position: Expr) -> Expr:
    """`source[at, position]`."""
    loop = Loop(f"{operation.name}_{source.name}", source.shape[-1])
    body = element(source, (*at, Symbol(loop.var)), widened(source.dtype))
    return bound(operation, body, [(loop, position)])


def _total(operation: Operation, part: int, dtype: torch.dtype) -> Expr:
    """The sum over all targets of the losses (0) or of the weights (1)."""
    shape = operation.tensor("self").shape
    loop = Loop(f"{operation.name}_{part}", shape[0] if len(shape) == 2 else ONE)
    at = (Symbol(loop.var),) if len(shape) == 2 else ()
    return Reduce("sum", (loop,), _terms(operation, at, dtype)[part], dtype)


@rule(Kind.indexing, "nll_loss_forward")
def nll_loss_forward(operation: Operation) -> Result:
    """Shapes: `self[n, c], target[n] -> output[n] or output[], total_weight[]`"""
    x, (output, total_weight) = operation.tensor("self"), operation.outputs
    reduction, dtype = reduction_of(operation), widened(x.dtype)
    if len(x.shape) == 2 and reduction is Reduction.none:
        if total_weight is not None:
            raise Declined("the weight of nothing")
        return convert(_terms(operation, coordinates(1), dtype)[0], x.dtype), None
    total, weight = (_total(operation, part, dtype) for part in (0, 1))
    loss = call("div", total, weight) if reduction is Reduction.mean else total
    return convert(loss, x.dtype) if output is not None else None, convert(weight, x.dtype)
