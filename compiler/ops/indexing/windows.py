"""Pooling: each element of the result from the elements under a window, all of them written out.

A window is a few taps, so the result is one expression over loads and runs along the innermost dimension like any
pointwise one. A tap outside of the input reads the nearest element and is not chosen.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int, Symbol, maximum, minimum, product, simplify
from assay.compiler.ir.loops.kernel import AsValue, Expr, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.machine import number
from assay.compiler.ops.indexing.indexing import clamped_place, compared, where_all
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, Rule, element, number_of, record

MOST_TAPS = 32
"""Windows of more elements are left to ATen: written out they would be long to compile."""


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of a window: where it starts in the input for an element of the result, and its taps."""

    size: Index
    count: Index
    kernel: int
    stride: int
    padding: int
    dilation: int

    def place(self, at: Index, tap: int) -> Index:
        return at * self.stride + (tap * self.dilation - self.padding)

    def conditions(self, at: Index, tap: int) -> list[Expr]:
        """What tells that a tap is inside; nothing where it always is."""
        place, offset = self.place(at, tap), tap * self.dilation - self.padding
        found = [] if offset >= 0 else [compared("ge", place, ZERO)]
        last = (self.count - 1) * self.stride + offset
        is_below = isinstance(last, Int) and isinstance(self.size, Int) and last.value < self.size.value
        return found if is_below else [*found, compared("lt", place, self.size)]

    def first(self, at: Index) -> Index:
        """The first tap's place that is inside."""
        start = self.place(at, 0)
        if self.padding == 0:
            return start
        behind = (start * -1 + (self.dilation - 1)) // self.dilation
        return maximum(start, start + behind * self.dilation)

    def span(self, at: Index, counts_padding: bool) -> Index:
        """How many elements of the window count in an average (dilation is 1)."""
        start = self.place(at, 0)
        end = minimum(start + self.kernel, self.size + self.padding)
        return end - start if counts_padding else minimum(end, self.size) - maximum(start, ZERO)

    def most_over(self) -> int:
        """How many windows may lie over one element of the input."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

    def window_over(self, at: Index, back: int) -> tuple[Index, list[Expr]]:
        """A window that may lie over an element of the input, `back` before the last, and what tells that it does."""
        place = (at + self.padding) // self.stride - back
        inside = [compared("lt", place, self.count)]
        if back:
            inside.append(compared("ge", place, ZERO))
            inside.append(compared("lt", at + self.padding - place * self.stride, Int(self.kernel)))
        elif self.kernel < self.stride:
            inside.append(compared("lt", (at + self.padding) % self.stride, Int(self.kernel)))
        return place, inside


def spread(value: Any, count: int, default: Sequence[int] | None = None) -> list[int]:
    """A parameter of a window, by dimension. Raises: Declined for one that is not constant."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    if not given and default is not None:
        return list(default)
    if not all(isinstance(number, int) for number in given):
        raise Declined("a window of symbolic size")
    return given * count if len(given) == 1 else given


def sides_of(operation: Operation, tensor: Tensor, count: int, source: Tensor | None = None) -> list[Side]:
    """The last `count` dimensions, for the pooling of `tensor`, or where `source` was pooled into `tensor`.

    Raises: Declined for windows that are too large to write out.
    """
    arguments = operation.arguments
    kernel = spread(arguments["kernel_size"], count)
    stride = spread(arguments["stride"], count, kernel)
    padding, dilation = spread(arguments["padding"], count), spread(arguments.get("dilation", 1), count)
    if math.prod(kernel) > MOST_TAPS or ZERO in tensor.shape or ZERO in operation.output.shape:
        raise Declined("a large window, or an empty one")
    before, after = (tensor, operation.output) if source is None else (source, tensor)
    sizes, counts = before.shape[-count:], after.shape[-count:]
    return [Side(*each) for each in zip(sizes, counts, kernel, stride, padding, dilation, strict=True)]


@dataclass(frozen=True, slots=True)
class Tap:
    """One element under a window, and what tells that it is in the input.

    `offset` is how far it lies behind the window's first tap, flat within the last dimensions.
    """

    value: Expr
    offset: Index
    conditions: list[Expr]


def taps(source: Tensor, sides: Sequence[Side], dtype: torch.dtype) -> list[Tap]:
    """The elements under the window of an element, row by row."""
    own = coordinates(len(source.shape))
    outer, inner = own[: -len(sides)], own[-len(sides) :]
    found = []
    for chosen in itertools.product(*(range(side.kernel) for side in sides)):
        places, conditions = list[Index](), list[Expr]()
        for side, at, tap in zip(sides, inner, chosen, strict=True):
            inside = side.conditions(at, tap)
            place = side.place(at, tap)
            places.append(clamped_place(place, side.size) if inside else place)
            conditions += inside
        steps = [Int(tap * side.dilation) for side, tap in zip(sides, chosen, strict=True)]
        offset = flat_place(steps, source.shape[-len(sides) :])
        found.append(Tap(element(source, (*outer, *places), dtype), offset, conditions))
    return found


def flat_place(places: Sequence[Index], sizes: Sequence[Index]) -> Index:
    """The position of an element within dimensions of these sizes."""
    flat: Index = ZERO
    for place, size in zip(places, sizes, strict=True):
        flat = flat * size + place
    return flat


# ---- maximum ---------------------------------------------------------------------------------------------------------


def max_pool(count: int) -> Rule:
    """A rule: the first of equal maxima and its position, and the last NaN, as eager takes them tap by tap."""

    def lower(operation: Operation) -> Result:
        source = pooled(operation, "self", count)
        sides = sides_of(operation, source, count)
        dtype, sizes, own = widened(source.dtype), source.shape[-count:], coordinates(len(source.shape))[-count:]
        narrow = dtype_of_offsets(sizes)
        begin = flat_place([side.place(at, 0) for side, at in zip(sides, own, strict=True)], sizes)
        first, *others = taps(source, sides, dtype)
        if first.conditions:
            start = flat_place([side.first(at) for side, at in zip(sides, own, strict=True)], sizes)
            best, offset = constant(-math.inf, dtype), number_of(start - begin, narrow)  # type: Expr, Expr
            others = [first, *others]
        else:
            best, offset = first.value, constant(0, narrow)
        for tap in others:
            better = call("logical_or", call("gt", tap.value, best), call("isnan", tap.value))
            chosen = all_of([*tap.conditions, better])
            best = call("where", chosen, tap.value, best, dtype=dtype)
            offset = call("where", chosen, number_of(tap.offset, narrow), offset, dtype=narrow)
        position = call("add", AsValue(begin, torch.int64), convert(offset, torch.int64))
        return convert(best, source.dtype), position

    return lower


def dtype_of_offsets(sizes: Sequence[Index]) -> torch.dtype:
    """What holds a flat offset within these dimensions: 32 bits where they suffice, as many as a value's."""
    total = math.prod(size.value if isinstance(size, Int) else sys.maxsize for size in sizes)
    return torch.int32 if total <= torch.iinfo(torch.int32).max else torch.int64


record(Kind.indexing, max_pool(2), "max_pool2d_with_indices")
record(Kind.indexing, max_pool(3), "max_pool3d_with_indices")


def pooled(operation: Operation, name: str, count: int) -> Tensor:
    """The tensor that is pooled over its last dimensions. Raises: Declined for integers and other ranks."""
    tensor = operation.tensor(name)
    if len(tensor.shape) not in (count + 1, count + 2) or not tensor.dtype.is_floating_point:
        raise Declined("integers")
    return tensor


def all_of(conditions: list[Expr]) -> Expr:
    """Whether all conditions hold."""
    found = conditions[0]
    for other in conditions[1:]:
        found = call("logical_and", found, other)
    return found


# ---- average ---------------------------------------------------------------------------------------------------------


def average_pool(count: int) -> Rule:
    """A rule: the sum over the window, divided by how many elements of it count."""

    def lower(operation: Operation) -> Result:
        source = pooled(operation, "self", count)
        sides, dtype = sides_of(operation, source, count), widened(source.dtype)
        elements = math.prod(side.kernel for side in sides)
        if source.stride[-count - 1] is ONE and elements > number("channels_last_window_elements"):
            raise Declined("channels last")
        total: Expr = constant(0.0, dtype)
        for tap in taps(source, sides, dtype):
            total = call("add", total, where_all(tap.conditions, tap.value, constant(0.0, dtype)))
        divisor = divisor_of(operation, sides, coordinates(len(source.shape))[-count:], dtype)
        return (convert(call("div", total, divisor), source.dtype),)

    return lower


for _count in (1, 2, 3):
    record(Kind.indexing, average_pool(_count), f"avg_pool{_count}d")
del _count


def divisor_of(operation: Operation, sides: Sequence[Side], at: Sequence[Index], dtype: torch.dtype) -> Expr:
    """What the sum of the window at `at` is divided by."""
    if operation.arguments.get("divisor_override") is not None:
        return constant(operation.number("divisor_override"), dtype)
    counts_padding = bool(operation["count_include_pad"])
    spans = [side.span(place, counts_padding) for side, place in zip(sides, at, strict=True)]
    ranges = {place.name: side.count for side, place in zip(sides, at, strict=True) if isinstance(place, Symbol)}
    return number_of(simplify(product(tuple(spans)), ranges), dtype)


def average_pool_backward(count: int) -> Rule:
    """A rule: for each element, its share of the few windows that it lies under."""

    def lower(operation: Operation) -> Result:
        gradient = pooled(operation, "grad_output", count)
        source = operation.tensor("self")
        sides, dtype = sides_of(operation, gradient, count, source), widened(source.dtype)
        own = coordinates(len(source.shape))
        total: Expr = constant(0.0, dtype)
        for chosen in itertools.product(*(range(side.most_over()) for side in sides)):
            over = [side.window_over(at, back) for side, at, back in zip(sides, own[-count:], chosen, strict=True)]
            conditions = [condition for _, found in over for condition in found]
            places = [clamped_place(place, side.count) for (place, _), side in zip(over, sides, strict=True)]
            share = element(gradient, (*own[:-count], *places), dtype)
            share = call("div", share, divisor_of(operation, sides, places, dtype))
            total = call("add", total, where_all(conditions, share, constant(0.0, dtype)))
        return (convert(total, source.dtype),)

    return lower


record(Kind.indexing, average_pool_backward(2), "avg_pool2d_backward")
record(Kind.indexing, average_pool_backward(3), "avg_pool3d_backward")


# ---- windows of a given number, which may differ in size and overlap -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """One dimension of `size` elements in `count` windows: the k-th reaches from `k*size/count`, rounded down, to the
    start of the next, rounded up. Seen from an element, so lie the windows that it is in, sizes exchanged."""

    size: int
    count: int

    def start(self, at: Index) -> Index:
        return at * self.size // self.count

    def end(self, at: Index) -> Index:
        return ((at + 1) * self.size + (self.count - 1)) // self.count

    def length(self, at: Index) -> Index:
        """The number of elements of a window; a constant where all are alike."""
        return Int(self.size // self.count) if self.is_even else self.end(at) - self.start(at)

    @property
    def is_even(self) -> bool:
        return self.size % self.count == 0

    @property
    def longest(self) -> int:
        lengths = (-(-(k + 1) * self.size // self.count) - k * self.size // self.count for k in range(self.count))
        return max(lengths)

    def place(self, at: Index, offset: Index) -> tuple[Index, list[Expr]]:
        """An element of a window, and what tells that it is still in it."""
        place = self.start(at) + offset
        if self.longest == 1:
            return self.start(at), []
        return (
            (place, []) if self.is_even else (minimum(place, Int(self.size - 1)), [compared("lt", place, self.end(at))])
        )


def shares(inner: tuple[Index, ...], outer: tuple[Index, ...], count: int) -> list[Share]:
    """The last dimensions of `inner` in as many windows as `outer` has. Raises: Declined for symbolic or empty ones."""
    pairs = list(zip(inner[-count:], outer[-count:], strict=True))
    if not all(isinstance(a, Int) and isinstance(b, Int) and a.value * b.value > 0 for a, b in pairs):
        raise Declined("windows of symbolic size, or empty ones")
    return [Share(a.value, b.value) for a, b in pairs if isinstance(a, Int) and isinstance(b, Int)]


def total_of_shares(
    operation: Operation, dims: Sequence[Share], at: Sequence[Index], value: Callable[[list[Index]], Expr]
) -> Expr:
    """The sum of the values at the elements of the windows at some coordinates."""
    loops = tuple(Loop(f"{operation.name}_{k}", Int(share.longest)) for k, share in enumerate(dims))
    found = [share.place(place, Symbol(loop.var)) for share, place, loop in zip(dims, at, loops, strict=True)]
    each = value([place for place, _ in found])
    inside = [condition for _, conditions in found for condition in conditions]
    return Reduce("sum", loops, where_all(inside, each, constant(0.0, each.dtype)), each.dtype)


def divided_by_lengths(value: Expr, dims: Sequence[Share], at: Sequence[Index]) -> Expr:
    """By the number of elements of the window at some coordinates, side by side."""
    for share, place in zip(dims, at, strict=True):
        value = call("div", value, number_of(share.length(place), value.dtype))
    return value


def adaptive_average_pool(count: int) -> Rule:
    def lower(operation: Operation) -> Result:
        source, output = pooled(operation, "self", count), operation.output
        dims, dtype = shares(source.shape, output.shape, count), widened(source.dtype)
        if source.stride[-count - 1] is ONE and not all(share.is_even for share in dims):
            raise Declined("channels last")  # ATen takes 0.2 of our time
        own = coordinates(len(source.shape))
        total = total_of_shares(
            operation, dims, own[-count:], lambda places: element(source, (*own[:-count], *places), dtype)
        )
        return (convert(divided_by_lengths(total, dims, own[-count:]), source.dtype),)

    return lower


def adaptive_average_pool_backward(count: int) -> Rule:
    """A rule: for each element, its part of the windows that it is in."""

    def lower(operation: Operation) -> Result:
        gradient, source = pooled(operation, "grad_output", count), operation.tensor("self")
        dims, dtype = shares(source.shape, gradient.shape, count), widened(source.dtype)
        if not all(share.is_even for share in dims):
            raise Declined("windows of different sizes")  # ATen adds each up in 0.1 to 1 of our time
        over = [Share(share.count, share.size) for share in dims]
        own = coordinates(len(source.shape))

        def part(windows: list[Index]) -> Expr:
            return divided_by_lengths(element(gradient, (*own[:-count], *windows), dtype), dims, windows)

        return (convert(total_of_shares(operation, over, own[-count:], part), source.dtype),)

    return lower


def adaptive_max_pool(count: int) -> Rule:
    """A rule: the first of equal maxima and its position, and the last NaN, of windows that are written out."""

    def lower(operation: Operation) -> Result:
        source = pooled(operation, "self", count)
        shape = next(output.shape for output in operation.outputs if output is not None)
        dims, dtype = shares(source.shape, shape, count), widened(source.dtype)
        if math.prod(share.longest for share in dims) > MOST_TAPS:
            raise Declined("a large window")
        own = coordinates(len(source.shape))
        sizes = source.shape[-count:]
        narrow = dtype_of_offsets(sizes)
        best, offset = constant(-math.inf, dtype), constant(0, narrow)  # type: Expr, Expr
        for chosen in itertools.product(*(range(share.longest) for share in dims)):
            found = [share.place(at, Int(tap)) for share, at, tap in zip(dims, own[-count:], chosen, strict=True)]
            places = [place for place, _ in found]
            value = element(source, (*own[:-count], *places), dtype)
            better = call("logical_or", call("gt", value, best), call("isnan", value))
            is_new = all_of([*(condition for _, conditions in found for condition in conditions), better])
            best = call("where", is_new, value, best, dtype=dtype)
            here = number_of(flat_place([Int(tap) for tap in chosen], sizes), narrow)
            offset = call("where", is_new, here, offset, dtype=narrow)
        start = flat_place([share.start(at) for share, at in zip(dims, own[-count:], strict=True)], sizes)
        return convert(best, source.dtype), call("add", AsValue(start, torch.int64), convert(offset, torch.int64))

    return lower


for _count in (2, 3):
    record(Kind.indexing, adaptive_average_pool(_count), f"_adaptive_avg_pool{_count}d")
    record(Kind.indexing, adaptive_average_pool_backward(_count), f"_adaptive_avg_pool{_count}d_backward")
    record(Kind.indexing, adaptive_max_pool(_count), f"adaptive_max_pool{_count}d")
del _count
