"""The loss of a class chosen by data: `-x[n, target[n]] * weight[target[n]]`, summed or averaged by the weights; of
images one for each pixel.

A target that is ignored reads nothing; any other out of range fails as in eager, with an IndexError, which torch's
decomposition through `gather` makes a RuntimeError of.
"""

from __future__ import annotations

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol
from assay.compiler.ir.loops.kernel import Expr, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.indexing.lookup import bound, checked
from assay.compiler.ops.losses.losses import Reduction, reduction_of
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, rule


def _terms(operation: Operation, at: tuple[Index, ...], dtype: torch.dtype) -> tuple[Expr, Expr]:
    """The loss of one target, and its weight; both 0 where it is ignored."""
    x, target = operation.tensor("self"), operation.tensor("target")
    if ZERO in (*x.shape, *target.shape):
        raise Declined("nothing to choose from")
    zero, chosen = constant(0, dtype), element(target, at, torch.int64)
    is_ignored = call("eq", chosen, constant(int(operation.number("ignore_index")), torch.int64))
    safe = call("where", is_ignored, constant(0, torch.int64), chosen, dtype=torch.int64)
    position = checked(safe, x.shape[_classes(x)], "target", wraps=False)
    one = constant(1, dtype)
    weight = one if operation["weight"] is None else _picked(operation, operation.tensor("weight"), (), position)
    loss = call("neg", call("mul", _picked(operation, x, at, position), weight))
    loss, weight = (call("where", is_ignored, zero, term, dtype=dtype) for term in (loss, weight))
    return loss, weight


def _classes(x: Tensor) -> int:
    """The dimension that a class is chosen in: the second, of one sample the only one."""
    return min(1, len(x.shape) - 1)


def _picked(operation: Operation, source: Tensor, at: tuple[Index, ...], position: Expr) -> Expr:
    """`source[at[:1], position, at[1:]]`."""
    loop = Loop(f"{operation.name}_{source.name}", source.shape[_classes(source)])
    body = element(source, (*at[:1], Symbol(loop.var), *at[1:]), widened(source.dtype))
    return bound(operation, body, [(loop, position)])


def _total(operation: Operation, part: int, dtype: torch.dtype) -> Expr:
    """The sum over all targets of the losses (0) or of the weights (1)."""
    shape = operation.tensor("target").shape
    extents = shape if len(operation.tensor("self").shape) > 1 else (ONE,)
    loops = tuple(Loop(f"{operation.name}_{part}_{dim}", extent) for dim, extent in enumerate(extents))
    at = tuple(Symbol(loop.var) for loop in loops) if len(operation.tensor("self").shape) > 1 else ()
    return Reduce("sum", loops, _terms(operation, at, dtype)[part], dtype)


@rule(Kind.indexing, "nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(operation: Operation) -> Result:
    """Shapes: `self[n, c, ...], target[n, ...] -> output[n, ...] or output[], total_weight[]`"""
    x, (output, total_weight) = operation.tensor("self"), operation.outputs
    reduction, dtype, rank = reduction_of(operation), widened(x.dtype), len(x.shape)
    if rank > 1 and reduction is Reduction.none:
        if total_weight is not None and rank == 2:
            raise Declined("the weight of nothing")
        each = None if output is None else convert(_terms(operation, coordinates(rank - 1), dtype)[0], x.dtype)
        return each, None if total_weight is None else convert(constant(0, dtype), x.dtype)
    total, weight = (_total(operation, part, dtype) for part in (0, 1))
    loss = call("div", total, weight) if reduction is Reduction.mean else total
    return convert(loss, x.dtype) if output is not None else None, convert(weight, x.dtype)
