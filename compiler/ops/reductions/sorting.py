"""Sorted rows, and the greatest elements of rows, for rows of a known length that is short.

    sort    rank[i] = how many elements stand before x[i]; position[r] = sum_i where(rank[i] == r, i, 0)
    topk    position[p] = the first place of the greatest element of all but position[0], ..., position[p - 1]

Both give x[position] and the position. Nothing is stored but these, and what is computed from them joins their kernel.
NaN is greatest, zeros of both signs are equal, and of equals the first comes first, as in eager's stable sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import AsValue, Bind, Expr, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.machine import number
from assay.compiler.ops.indexing.indexing import where_all
from assay.compiler.ops.indexing.lookup import of_scalars
from assay.compiler.ops.often_equal import RARELY_EQUAL
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, record

LONGEST_SORTED = {"cpu": 64, "cuda": 32}
"""Ranks take the square of the length, and each is an expression of its own: 64 of them compile for 10 s for a GPU. Of
float32 ATen's time on a CPU is 3 times ours at 64 elements and 5 times at 8."""
LONGEST_NARROW = 32
"""The same for elements of less than 4 bytes, which are converted as they are compared: at 64 ours is ATen's."""
LONGEST_INSERTED = 16
"""Rows that eager sorts on a CPU by insertion, and so stably without being asked."""
MOST_TAKEN = 8
"""Passes over a row, each of which compares with the places of those before."""
FEW_TAKEN = 4
LONGEST_KEPT = 4096
"""A row that a GPU keeps in registers through all passes, which would each read a longer one again."""
LATE = 1 << 20
"""What is added to the place of an element that is chosen only if there is no other; the bits of a place are below."""
NOWHERE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Row:
    """The rows of a tensor along `dim`, at the coordinates of a result that has this dimension too."""

    name: str
    tensor: Tensor
    dim: int
    length: int

    @property
    def here(self) -> Expr:
        """The coordinate of the result along the rows."""
        return AsValue(coordinates(len(self.tensor.shape))[self.dim], torch.int32)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that elements are compared in."""
        kept = self.tensor.dtype
        return widened(kept) if kept.is_floating_point or kept.itemsize >= 4 else torch.int32

    def at(self, place: Index, dtype: torch.dtype | None = None) -> Expr:
        """The element at a place, as it is compared or as `dtype`."""
        own = coordinates(len(self.tensor.shape))
        return element(self.tensor, (*own[: self.dim], place, *own[self.dim + 1 :]), dtype or self.dtype)

    def loop(self, purpose: str) -> Loop:
        return Loop(f"{self.name}_{purpose}", Int(self.length))


def row_of(operation: Operation) -> Row:
    """Raises: Declined for rows of symbolic length, and along a dimension that there is not, which no trace rejects."""
    tensor = operation.tensor("self")
    rank, dim = len(tensor.shape), operation["dim"]
    if not -rank <= dim < rank:
        raise Declined("no such dimension")
    dim, extent = dim % rank, tensor.shape[dim]
    if not isinstance(extent, Int):
        raise Declined("rows of symbolic length")
    return Row(operation.name, tensor, dim, extent.value)


def found_at(row: Row, position: Expr) -> Result:
    """The elements at positions, and these."""
    loop, dtype, place = row.loop("v"), row.tensor.dtype, convert(position, torch.int64)
    return Bind(loop, place, row.at(Symbol(loop.var), dtype), dtype), place


def one_if(condition: Expr) -> Expr:
    return call("where", condition, constant(1, torch.int32), constant(0, torch.int32), dtype=torch.int32)


# ---- by rank ---------------------------------------------------------------------------------------------------------


def sort(operation: Operation) -> Result:
    """Raises: Declined for long rows, and for equals in an order that is eager's own."""
    row = row_of(operation)
    is_stable = bool(operation.arguments.get("stable"))
    is_by_insertion = row.tensor.device.type == "cpu" and row.length <= LONGEST_INSERTED
    if not (is_stable or is_by_insertion) and has_equals(operation, row):
        raise Declined("equals")
    if not is_sortable(row):
        raise Declined("long rows")
    return found_at(row, sorted_position(row, bool(operation["descending"])))


record(Kind.indexing, of_scalars(sort), "sort", "sort.stable")


def has_equals(operation: Operation, row: Row) -> bool:
    """Whether elements are often equal, so that eager's own order of equals shows."""
    return row.tensor.dtype not in RARELY_EQUAL or operation.orders_equals


def is_sortable(row: Row) -> bool:
    """Whether ranks are found faster than ATen sorts."""
    most = LONGEST_SORTED[row.tensor.device.type]
    return row.length <= (most if row.tensor.dtype.itemsize >= 4 else min(most, LONGEST_NARROW))


def is_passed(row: Row, count: int) -> bool:
    """Whether passes find so many elements faster than ATen."""
    longest = LATE if row.tensor.device.type == "cpu" else LONGEST_KEPT
    is_near = count <= FEW_TAKEN or count * row.length <= number("selected_elements")
    return count <= MOST_TAKEN and is_near and row.length < longest


def sorted_position(row: Row, descending: bool) -> Expr:
    """Where the element stands that is here in the sorted row: the one whose rank is this place."""
    none = constant(0, torch.int32)
    terms: list[Expr] = [
        call("where", call("eq", rank, row.here), constant(place, torch.int32), none, dtype=torch.int32)
        for place, rank in enumerate(ranks(row, descending))
    ]
    while len(terms) > 1:  # in pairs, no deeper than it must be
        terms = [call("add", *terms[k : k + 2]) if k + 1 < len(terms) else terms[k] for k in range(0, len(terms), 2)]
    return terms[0]


def ranks(row: Row, descending: bool) -> list[Expr]:
    """Where each element of the row goes. Comparisons are false of a NaN, whose place is known by itself: ones that
    put it where it belongs do not vectorise."""
    found = [numbers_before(row, place, descending) for place in range(row.length)]
    if not row.dtype.is_floating_point:
        return found
    loop = row.loop("n")
    nans = Reduce("sum", (loop,), one_if(call("isnan", row.at(Symbol(loop.var)))), torch.int32)
    none, all_ = constant(0, torch.int32), constant(row.length, torch.int32)
    of_nan: Expr = none if descending else call("sub", all_, nans)
    for place, before in enumerate(found):
        is_nan = call("isnan", row.at(Int(place)))
        of_number = call("add", nans, before) if descending else before
        found[place] = call("where", is_nan, of_nan, of_number, dtype=torch.int32)
        of_nan = call("add", of_nan, one_if(is_nan))
    return found


def numbers_before(row: Row, place: int, descending: bool) -> Expr:
    """How many numbers of the row go before one of its elements: those that are less, and equals that stand before."""
    loop = row.loop(f"r{place}")
    mine, other = row.at(Int(place)), row.at(Symbol(loop.var))
    stands_before = call("lt", AsValue(Symbol(loop.var), torch.int32), constant(place, torch.int32))
    less, not_greater = ("gt", "ge") if descending else ("lt", "le")
    stays, comes = one_if(call(not_greater, other, mine)), one_if(call(less, other, mine))
    return Reduce("sum", (loop,), call("where", stands_before, stays, comes, dtype=torch.int32), torch.int32)


# ---- by passes -------------------------------------------------------------------------------------------------------


def topk(operation: Operation) -> Result:
    """More elements than passes find are the first of the sorted row.

    Raises: Declined for unsorted results, whose order is what eager's own algorithm leaves, as that of equals is.
    """
    row, count, largest = row_of(operation), operation["k"], bool(operation["largest"])
    if not isinstance(count, int) or (count > 1 and not operation["sorted"]):
        raise Declined("a symbolic number of elements, or no order")
    if has_equals(operation, row):
        raise Declined("equals")
    if is_passed(row, count):
        return found_at(row, chosen(row, count, largest))
    if not is_sortable(row):
        raise Declined("many of a row, or of a long one")
    return found_at(row, sorted_position(row, largest))


record(Kind.indexing, of_scalars(topk), "topk")


def chosen(row: Row, count: int, largest: bool) -> Expr:
    """The position that is the result here, of those that so many passes find."""
    taken: list[Expr] = []
    for _ in range(count):
        taken.append(next_best(row, taken, largest))
    position = taken[-1]
    for rank, place in reversed(list(enumerate(taken[:-1]))):
        is_here = call("eq", row.here, constant(rank, torch.int32))
        position = call("where", is_here, place, position, dtype=torch.int32)
    return position


def next_best(row: Row, taken: Sequence[Expr], largest: bool) -> Expr:
    """The first place of the best element that is left, among those that are equal to it. NaN is the best of the
    largest, and of the smallest comes where there is nothing else: late."""
    loop = row.loop(f"p{len(taken)}")
    found, place = row.at(Symbol(loop.var)), AsValue(Symbol(loop.var), torch.int32)
    is_best, nowhere = call("eq", found, best_left(row, taken, largest)), constant(NOWHERE, torch.int32)
    if largest:
        is_best = call("logical_or", is_best, call("isnan", found))
    otherwise = nowhere if largest else call("add", place, constant(LATE, torch.int32))
    position = call("where", is_best, place, otherwise, dtype=torch.int32)
    first = Reduce("min", (loop,), where_all(left(loop, taken), position, nowhere), torch.int32)
    return first if largest else call("bitwise_and", first, constant(LATE - 1, torch.int32))


def best_left(row: Row, taken: Sequence[Expr], largest: bool) -> Expr:
    """The greatest element but those taken, or the least that is a number."""
    loop, worst = row.loop(f"b{len(taken)}"), constant(-math.inf if largest else math.inf, row.dtype)
    value = row.at(Symbol(loop.var))
    if not largest:
        value = call("where", call("isnan", value), worst, value, dtype=row.dtype)
    return Reduce("max" if largest else "min", (loop,), where_all(left(loop, taken), value, worst), row.dtype)


def left(loop: Loop, taken: Sequence[Expr]) -> list[Expr]:
    """What holds of a place that is none of those taken."""
    return [call("ne", AsValue(Symbol(loop.var), torch.int32), place) for place in taken]
