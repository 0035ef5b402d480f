"""Resampling: elements of an input at places that are computed from the coordinates: padding by reflection, upsampling,
patches of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from assay.compiler.ir.loops.index import ZERO, Index, Int, Symbol, as_index, maximum, minimum
from assay.compiler.ir.loops.kernel import AsValue, Bind, Expr, Loop
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.indexing.indexing import clamped_place, compared, is_empty, needs_elements, where_all
from assay.compiler.ops.indexing.windows import Side, spread, taps
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, Rule, element, record, rule

# ---- padding with elements of the input ------------------------------------------------------------------------------


def reflected(place: Index, size: Index) -> Index:
    """A place outside as its mirror image in the first or last element."""
    return minimum(maximum(place, place * -1), (size - 1) * 2 - place)


def replicated(place: Index, size: Index) -> Index:
    return clamped_place(place, size)


def padding(inside: Callable[[Index, Index], Index], count: int) -> Rule:
    """A rule: the element at the place that `inside` gives for one beyond the last `count` dimensions."""

    def lower(operation: Operation) -> Result:
        source, pads = operation.tensor("self"), operation["padding"]
        if is_empty(source):
            raise Declined("an empty tensor")
        at = list(coordinates(len(source.shape)))
        for pair in range(count):
            dim = len(at) - 1 - pair
            at[dim] = inside(at[dim] - as_index(pads[2 * pair]), source.shape[dim])
        return (element(source, tuple(at), operation.output.dtype),)

    return lower


for _count in (1, 2, 3):
    record(Kind.indexing, padding(reflected, _count), f"reflection_pad{_count}d")
    record(Kind.indexing, padding(replicated, _count), f"replication_pad{_count}d")
del _count


# ---- upsampling ------------------------------------------------------------------------------------------------------


def scales_of(operation: Operation, count: int) -> list[float | None]:
    """The scale factors that the caller gave, by dimension."""
    names = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}[count]
    return [operation.arguments.get(name) for name in names]


def static(extent: Index) -> int:
    """A size as a number. Raises: Declined for a symbolic one, whose rounding is not known."""
    if not isinstance(extent, Int):
        raise Declined("a symbolic size")
    return extent.value


def nearest_places(size: int, count: int, scale: float | None, offset: float) -> list[int]:
    """Where eager reads for each of `count` elements: a product in float32, rounded down."""
    step = torch.tensor(step_of(size, count, scale), dtype=torch.float32)
    if offset == 0 and count == size:
        return list(range(size))
    if offset == 0 and count == 2 * size:
        return [place >> 1 for place in range(count)]
    places = torch.floor((torch.arange(count, dtype=torch.float32) + offset) * step).long()
    return [int(place) for place in places.clamp(max=size - 1)]


def as_formula(places: Sequence[int], at: Index) -> Index | None:
    """`at // k` or `k * at + c` where these are the places, else None."""
    count = len(places)
    repeats = places.count(places[0])
    if all(place == k // repeats for k, place in enumerate(places)):
        return at // repeats
    step = places[1] - places[0] if count > 1 else 1
    if all(place == step * k + places[0] for k, place in enumerate(places)):
        return at * step + places[0]
    return None


def nearest(count: int, offset: float) -> Rule:
    """A rule: the nearest element; `offset` is 0.5 for the exact kind."""

    def lower(operation: Operation) -> Result:
        source, output = operation.tensor("self"), operation.output
        if is_empty(source) or is_empty(output):
            raise Declined("an empty tensor")
        at = list(coordinates(len(source.shape)))
        computed: list[tuple[Loop, Expr]] = []
        for k, scale in enumerate(scales_of(operation, count)):
            dim = len(at) - count + k
            size, larger = static(source.shape[dim]), static(output.shape[dim])
            formula = as_formula(nearest_places(size, larger, scale, offset), at[dim])
            if formula is None:
                loop = Loop(f"{operation.name}_{dim}", source.shape[dim])
                computed.append((loop, nearest_position(at[dim], size, larger, scale, offset)))
                formula = Symbol(loop.var)
            at[dim] = formula
        return (at_positions(element(source, tuple(at), output.dtype), computed),)

    return lower


def at_positions(body: Expr, positions: Sequence[tuple[Loop, Expr]]) -> Expr:
    """The body with the variable of each loop at its position."""
    for loop, position in reversed(positions):
        body = Bind(loop, position, body, body.dtype)
    return body


def step_of(size: int, count: int, scale: float | None) -> float:
    """How far apart in the input neighbours of the result are."""
    return 1.0 / scale if scale is not None and scale > 0 else size / count


def nearest_position(at: Index, size: int, count: int, scale: float | None, offset: float) -> Expr:
    """What `nearest_places` gives, computed in the kernel."""
    place = call("add", AsValue(at, torch.float32), constant(offset, torch.float32))
    place = call("floor", call("mul", place, constant(step_of(size, count, scale), torch.float32)))
    return call("minimum", convert(place, torch.int64), constant(size - 1, torch.int64))


def nearest_backward(count: int, offset: float) -> Rule:
    """A rule: the sum over the elements that were read from here, where they are a block."""

    def lower(operation: Operation) -> Result:
        gradient, output = operation.tensor("grad_output"), operation.output
        if is_empty(gradient) or is_empty(output):
            raise Declined("an empty tensor")
        repeats = []
        for k, scale in enumerate(scales_of(operation, count)):
            size, larger = static(output.shape[k - count]), static(gradient.shape[k - count])
            places = nearest_places(size, larger, scale, offset)
            if larger % size or places != [place // (larger // size) for place in range(larger)]:
                raise Declined("a scale that is no integer")
            repeats.append(larger // size)
        sides = [Side(gradient.shape[k - count], output.shape[k - count], r, r, 0, 1) for k, r in enumerate(repeats)]
        if math.prod(repeats) > MOST_REPEATS:
            raise Declined("a large block")
        dtype = widened(output.dtype)
        total: Expr = constant(0.0, dtype)
        for tap in taps(gradient, sides, dtype):
            total = call("add", total, tap.value)
        return (convert(total, output.dtype),)

    return lower


MOST_REPEATS = 32
"""Elements of a block that are written out."""

for _count in (1, 2, 3):
    record(Kind.indexing, nearest(_count, 0.0), f"upsample_nearest{_count}d")
    record(Kind.indexing, nearest(_count, 0.5), f"_upsample_nearest_exact{_count}d")
    record(Kind.indexing, nearest_backward(_count, 0.0), f"upsample_nearest{_count}d_backward")
    record(Kind.indexing, nearest_backward(_count, 0.5), f"_upsample_nearest_exact{_count}d_backward")
del _count


def bilinear(operation: Operation) -> Result:
    """The mean of the four elements around, weighted by how near they are; places and weights as wide as sums are."""
    source, output = operation.tensor("self"), operation.output
    if is_empty(source) or is_empty(output) or not output.dtype.is_floating_point:
        raise Declined("an empty tensor, or one of integers")
    dtype, aligns = widened(output.dtype), bool(operation["align_corners"])
    *outer, row, column = coordinates(len(source.shape))
    computed: list[tuple[Loop, Expr]] = []
    sides: list[list[tuple[Index, Expr]]] = []
    for dim, at, scale in zip((-2, -1), (row, column), scales_of(operation, 2), strict=True):
        size = static(source.shape[dim])
        place = between(at, size, static(output.shape[dim]), scale, aligns, dtype)
        loop = Loop(f"{operation.name}_{dim % len(source.shape)}", source.shape[dim])
        computed.append((loop, call("minimum", convert(place, torch.int64), constant(size - 1, torch.int64))))
        first = Symbol(loop.var)
        weight = call("sub", place, AsValue(first, dtype))
        sides.append(
            [(first, call("sub", constant(1.0, dtype), weight)), (minimum(first + 1, as_index(size - 1)), weight)]
        )

    def along(y: Index) -> Expr:
        near, far = (call("mul", weight, element(source, (*outer, y, x), dtype)) for x, weight in sides[1])
        return call("add", near, far)

    above, below = (call("mul", weight, along(y)) for y, weight in sides[0])
    return (at_positions(convert(call("add", above, below), output.dtype), computed),)


def between(at: Index, size: int, count: int, scale: float | None, aligns: bool, dtype: torch.dtype) -> Expr:
    """The place in the input, from 0 on, of one of `count` elements of the result, as a number that may lie between
    two.

    Where corners are aligned (`aligns`), the first and the last elements of both lie on each other.
    """
    if aligns:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
        return call("mul", AsValue(at, dtype), constant(step, dtype))
    half = constant(0.5, dtype)
    place = call("mul", call("add", AsValue(at, dtype), half), constant(step_of(size, count, scale), dtype))
    return call("maximum", call("sub", place, half), constant(0.0, dtype))


def unless_on_cpu(rule: Rule) -> Rule:
    """A rule for other devices than a CPU, where ATen finds the places and weights of a row once.

    Computed at each element they take 1.6 to 2 times as long there. On a GPU they cost nothing beside the memory.
    """

    def lower(operation: Operation) -> Result:
        if operation.output.device.type == "cpu":
            raise Declined("ATen is faster on a CPU")
        return rule(operation)

    return lower


record(Kind.indexing, unless_on_cpu(bilinear), "upsample_bilinear2d")
record(Kind.indexing, None, "upsample_bilinear2d_backward")


# ---- patches ---------------------------------------------------------------------------------------------------------


@rule(Kind.indexing, "im2col")
def im2col(operation: Operation) -> Result:
    """`out[n, c*kh*kw, blocks]`: the patches of an image as columns, zeros around it."""
    source, output = operation.tensor("self"), operation.output
    kernel, stride = spread(operation["kernel_size"], 2), spread(operation["stride"], 2)
    padded, dilation = spread(operation["padding"], 2), spread(operation["dilation"], 2)
    if is_empty(source) or is_empty(output):
        raise Declined("an empty tensor")
    sizes = [static(extent) for extent in source.shape[-2:]]
    counts = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip(sizes, padded, dilation, kernel, stride, strict=True)
    ]
    *outer, row, column = coordinates(len(output.shape))
    blocks, offsets = [column // counts[1], column % counts[1]], [row // kernel[1] % kernel[0], row % kernel[1]]
    places = [
        block * s - p + offset * d
        for block, s, p, offset, d in zip(blocks, stride, padded, offsets, dilation, strict=True)
    ]
    inside = []
    for place, size, p in zip(places, source.shape[-2:], padded, strict=True):
        inside += [compared("ge", place, ZERO), compared("lt", place, size)] if p else []
    at = [
        clamped_place(place, size) if p else place
        for place, size, p in zip(places, source.shape[-2:], padded, strict=True)
    ]
    value = element(source, (*outer, row // (kernel[0] * kernel[1]), *at), output.dtype)
    return (where_all(inside, value, convert(constant(0, output.dtype), output.dtype)),)


def shuffled(name: str, upscales: bool) -> Rule:
    """A rule: `r*r` channels as blocks of `r` by `r` elements, or back."""

    def lower(operation: Operation) -> Result:
        source, factor = operation.tensor("self"), operation.number(name)
        *outer, channel, row, column = coordinates(len(operation.output.shape))
        r = int(factor)
        if upscales:
            at = (channel * (r * r) + row % r * r + column % r, row // r, column // r)
        else:
            at = (channel // (r * r), row * r + channel // r % r, column * r + channel % r)
        return (element(source, (*outer, *at), operation.output.dtype),)

    return lower


record(Kind.indexing, shuffled("upscale_factor", True), "pixel_shuffle")
record(Kind.indexing, shuffled("downscale_factor", False), "pixel_unshuffle")


@rule(Kind.indexing, "channel_shuffle")
def channel_shuffle(operation: Operation) -> Result:
    source, groups = operation.tensor("self"), as_index(operation["groups"])
    if source.stride != operation.output.stride:
        raise Declined("another layout")  # eager keeps channels last, fake tensors do not
    outer, channel, *inner = coordinates(len(source.shape))
    each = source.shape[1] // groups
    return (element(source, (outer, channel % groups * each + channel // groups, *inner), operation.output.dtype),)


# ---- parts of tensors put into others --------------------------------------------------------------------------------


@rule(Kind.indexing, "diagonal_scatter")
def diagonal_scatter(operation: Operation) -> Result:
    needs_elements(operation.fakes[1])
    return into_diagonal(operation, operation.tensor("src"), operation.value("self", operation.output.dtype))


@rule(Kind.indexing, "diagonal_backward")
def diagonal_backward(operation: Operation) -> Result:
    needs_elements(operation.fakes[0])
    zero = convert(constant(0, operation.output.dtype), operation.output.dtype)
    return into_diagonal(operation, operation.tensor("grad_output"), zero)


@rule(Kind.indexing, "diag_embed")
def diag_embed(operation: Operation) -> Result:
    needs_elements(operation.fakes[0])
    zero = convert(constant(0, operation.output.dtype), operation.output.dtype)
    return into_diagonal(operation, operation.tensor("self"), zero)


def into_diagonal(operation: Operation, source: Tensor, old: Expr) -> Result:
    """`old` with `source` on a diagonal."""
    if is_empty(source):
        return (old,)
    shape, offset = operation.output.shape, operation["offset"]
    own = coordinates(len(shape))
    first, second = operation["dim1"] % len(shape), operation["dim2"] % len(shape)
    down, right = max(-offset, 0), max(offset, 0)
    along = clamped_place(own[first] - down, source.shape[-1])
    rest = [at for dim, at in enumerate(own) if dim not in (first, second)]
    value = element(source, (*rest, along), operation.output.dtype)
    is_there = call("eq", AsValue(own[first] - down, torch.int64), AsValue(own[second] - right, torch.int64))
    inside = [is_there, compared("ge", own[first], as_index(down)), compared("ge", own[second], as_index(right))]
    return (where_all(inside, value, old),)
