"""Gradients of windows and of padding, and columns put back into images: each element as the sum of what was read
from it, which is a few taps of the gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int
from assay.compiler.ir.loops.kernel import Expr
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.indexing.indexing import clamped_place, compared, is_empty, where_all
from assay.compiler.ops.indexing.resampling import static
from assay.compiler.ops.indexing.windows import MOST_TAPS, spread
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, Rule, element, record, rule

Reading = tuple[tuple[Index, ...], list[Expr]]
"""A place in the gradient that may have read an element, and what tells that it has."""


def summed(
    operation: Operation, gradient: Tensor, readings: Sequence[Sequence[Reading]], at: Callable[..., tuple[Index, ...]]
) -> Result:
    """The sum over one reading of each dimension, at `at(*places)`, where all their conditions hold.

    Raises: Declined for more of them than are written out.
    """
    if math.prod(len(each) for each in readings) > MOST_TAPS or is_empty(gradient):
        raise Declined("many readings, or none")
    dtype = widened(operation.output.dtype)
    total: Expr | None = None
    for chosen in itertools.product(*readings):
        conditions = [condition for _, found in chosen for condition in found]
        value = element(gradient, at(*(place for place, _ in chosen)), dtype)
        tap = where_all(conditions, value, constant(0, dtype))
        total = tap if total is None else call("add", total, tap)
    assert total is not None
    return (convert(total, operation.output.dtype),)


# ---- padding ---------------------------------------------------------------------------------------------------------


def reflected_from(at: Index, size: int, before: int, after: int) -> list[Reading]:
    """From inside, from before the first element, from behind the last."""
    count = Int(size + before + after)
    left, right = before - at, at * -1 + (2 * size - 2 + before)
    readings: list[Reading] = [((at + before,), [])]
    if before:
        inside = [compared("ge", at, Int(1)), compared("lt", at, Int(before + 1))]
        readings.append(((clamped_place(left, count),), inside))
    if after:
        inside = [compared("lt", at, Int(size - 1)), compared("ge", at, Int(size - 1 - after))]
        readings.append(((clamped_place(right, count),), inside))
    return readings


def replicated_from(at: Index, size: int, before: int, after: int) -> list[Reading]:
    """From inside, for the first element from all before it, for the last from all behind it."""
    readings: list[Reading] = [((at + before,), [])]
    readings += [((Int(place),), [compared("lt", at, Int(1))]) for place in range(before)]
    behind = range(size + before, size + before + after)
    return [*readings, *(((Int(place),), [compared("ge", at, Int(size - 1))]) for place in behind)]


def padding_backward(readings_of: Callable[[Index, int, int, int], list[Reading]], count: int) -> Rule:
    def lower(operation: Operation) -> Result:
        gradient, pads, shape = operation.tensor("grad_output"), operation["padding"], operation.output.shape
        if not all(isinstance(pad, int) and pad >= 0 for pad in pads) or is_empty(operation.output):
            raise Declined("cropping")
        own = coordinates(len(shape))
        readings = []
        for k in range(count):
            dim, pair = len(own) - count + k, 2 * (count - 1 - k)
            readings.append(readings_of(own[dim], static(shape[dim]), pads[pair], pads[pair + 1]))
        return summed(
            operation, gradient, readings, lambda *places: (*own[: len(own) - count], *(at for (at,) in places))
        )

    return lower


for _count in (1, 2, 3):
    record(Kind.indexing, padding_backward(reflected_from, _count), f"reflection_pad{_count}d_backward")
    record(Kind.indexing, padding_backward(replicated_from, _count), f"replication_pad{_count}d_backward")
del _count


# ---- windows ---------------------------------------------------------------------------------------------------------


def windows_over(at: Index, count: Index, size: int, step: int) -> list[tuple[Index, Index, list[Expr]]]:
    """The windows that may lie over a place, where in them it is, and what tells that they do."""
    found = []
    for back in range(-(-size // step)):
        window = at // step - back
        inside = at - window * step
        conditions = [compared("lt", window, count)]
        conditions += [compared("ge", window, ZERO)] if back else []
        conditions += [] if size % step == 0 else [compared("lt", inside, Int(size))]
        found.append((clamped_place(window, count), clamped_place(inside, Int(size)), conditions))
    return found


@rule(Kind.indexing, "unfold_backward")
def unfold_backward(operation: Operation) -> Result:
    gradient, shape = operation.tensor("grad_in"), operation.output.shape
    size, step = operation.number("size"), operation.number("step")
    if step > 1 and shape and operation.output.stride[operation["dim"]] is ONE:
        raise Declined("windows along the innermost dimension that are apart")  # ATen takes 0.33 to 0.46 of our time
    if not shape or not size or is_empty(operation.output) or is_empty(gradient):
        raise Declined("a scalar, or an empty window")
    own, dim = coordinates(len(shape)), operation["dim"] % len(shape)
    over = windows_over(own[dim], gradient.shape[dim], int(size), int(step))
    dtype = widened(operation.output.dtype)
    if len(over) > MOST_TAPS:
        raise Declined("a large window")
    total: Expr = constant(0, dtype)
    for window, inside, conditions in over:
        value = element(gradient, (*own[:dim], window, *own[dim + 1 :], inside), dtype)
        total = call("add", total, where_all(conditions, value, constant(0, dtype)))
    return (convert(total, operation.output.dtype),)


@rule(Kind.indexing, "col2im")
def col2im(operation: Operation) -> Result:
    """`out[n, c, h, w]`: the sum of the patches' elements that lie over each pixel, which `im2col` reads."""
    columns, output = operation.tensor("self"), operation.output
    kernel, stride = spread(operation["kernel_size"], 2), spread(operation["stride"], 2)
    padded, dilation = spread(operation["padding"], 2), spread(operation["dilation"], 2)
    if max(stride) > 1:
        raise Declined("patches that are apart")  # ATen takes 0.2 to 0.8 of our time
    if is_empty(columns) or is_empty(output):
        raise Declined("an empty tensor")
    *outer, channel, _, _ = coordinates(len(output.shape))
    sides = list(
        zip(coordinates(len(output.shape))[-2:], output.shape[-2:], padded, dilation, kernel, stride, strict=True)
    )
    counts = [(static(size) + 2 * p - d * (k - 1) - 1) // s + 1 for _, size, p, d, k, s in sides]
    readings: list[list[Reading]] = []
    for (at, _, p, d, k, _), count in zip(sides, counts, strict=True):
        blocks = [at + (p - tap * d) for tap in range(k)]
        inside = [[compared("ge", block, ZERO), compared("lt", block, Int(count))] for block in blocks]
        readings.append([((clamped_place(blocks[t], Int(count)), Int(t)), inside[t]) for t in range(k)])

    def place(down: tuple[Index, ...], right: tuple[Index, ...]) -> tuple[Index, ...]:
        taps = (channel * kernel[0] + down[1]) * kernel[1] + right[1]
        return (*outer, taps, down[0] * counts[1] + right[0])

    return summed(operation, columns, readings, place)
