"""Which two groups read one matrix, the one by rows and the other by columns: they become one kernel.

The backward of a layer norm needs sums along each row, for the gradient of its input, and sums over all rows, for those
of its weights. As two kernels they read the matrix twice; in one, each row is read for both while it is near.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.compiler.ir.loops.index import Int, coefficient
from assay.compiler.ir.loops.kernel import Bind, Check, Kernel, Load, Reduce, Scan
from assay.compiler.ir.loops.rewrite import nodes
from assay.compiler.machine import number
from assay.compiler.schedule.fuse import Group
from assay.compiler.schedule.layout import Bound

Read = tuple[str, int, int]
"""A tensor that is read, and the steps of its elements from row to row and from column to column."""


def pairs_of(groups: Sequence[tuple[Group, Bound]]) -> Iterator[tuple[Group, Group]]:
    """The groups that go by rows, each with one that goes by columns; of each group in one pair at most.

    Neither needs the other: they are of one level.
    """
    by_rows: dict[tuple[int, Read], Group] = {}
    shapes: dict[int, tuple[int, int]] = {}
    for group, bound in groups:
        shape = _shape_of_rows(bound.kernel)
        if shape is not None:
            shapes[id(group)] = shape
            by_rows.update({(group.level, read): group for read in _reads(bound, "i0")})
    taken: set[int] = set()
    for group, bound in groups:
        shape = _shape_of_columns(bound.kernel)
        for read in () if shape is None else _reads(bound, None):
            rows = by_rows.get((group.level, read))
            if rows is not None and shapes[id(rows)] == shape and id(rows) not in taken:
                taken.add(id(rows))
                yield rows, group
                break


def _shape_of_rows(kernel: Kernel) -> tuple[int, int] | None:
    """The rows and columns of a kernel that reduces along rows and writes rows."""
    if len(kernel.loops) != 2 or not _is_plain(kernel):
        return None
    counts, reductions = _counts(kernel), _reductions(kernel)
    if counts is None or not reductions or any(_length(one) != counts[1] for one in reductions):
        return None
    rows, columns = counts
    return (rows, columns) if _is_worth_it(rows, columns) else None


def _shape_of_columns(kernel: Kernel) -> tuple[int, int] | None:
    """The rows and columns of a kernel that reduces over rows, for each column."""
    if len(kernel.loops) != 1 or not _is_plain(kernel):
        return None
    columns, reductions = _counts(kernel), _reductions(kernel)
    rows = {_length(one) for one in reductions}
    if columns is None or len(rows) != 1 or any(isinstance(n, Reduce) for r in reductions for n in nodes(r.body)):
        return None
    (count,) = rows
    if count is None or len(reductions) * columns[0] > number("column_totals") or not _is_worth_it(count, columns[0]):
        return None
    return count, columns[0]


def _is_worth_it(rows: int, columns: int) -> bool:
    has_rows, has_columns = rows >= number("read_once_rows"), columns >= number("read_once_columns")
    return has_rows and has_columns and rows * columns >= number("read_once_elements")


def _is_plain(kernel: Kernel) -> bool:
    if kernel.device.type != "cpu" or any(store.mode != "write" for store in kernel.stores):
        return False
    return not any(isinstance(node, Bind | Check | Scan) for node in nodes(*(store.expr for store in kernel.stores)))


def _reductions(kernel: Kernel) -> list[Reduce]:
    return [node for node in nodes(*(store.expr for store in kernel.stores)) if isinstance(node, Reduce)]


def _counts(kernel: Kernel) -> tuple[int, ...] | None:
    extents = [loop.extent for loop in kernel.loops]
    counts = tuple(extent.value for extent in extents if isinstance(extent, Int))
    return counts if len(counts) == len(extents) else None


def _length(reduction: Reduce) -> int | None:
    """The terms of a reduction over one loop."""
    extents = [loop.extent for loop in reduction.loops]
    return extents[0].value if len(extents) == 1 and isinstance(extents[0], Int) else None


def _reads(bound: Bound, row: str | None) -> Iterator[Read]:
    """What the reductions of a kernel read of matrices: by rows that are the loop `row`, or else their own."""
    tensors = dict(zip((buffer.name for buffer in bound.kernel.buffers), bound.arguments, strict=True))
    for reduction in _reductions(bound.kernel):
        (own,) = (loop.var for loop in reduction.loops)
        for load in nodes(reduction.body):
            if isinstance(load, Load):
                steps = coefficient(load.index, row or own), coefficient(load.index, own if row else "i0")
                if isinstance(steps[0], Int) and isinstance(steps[1], Int) and steps[0].value and steps[1].value:
                    yield tensors[load.buffer], steps[0].value, steps[1].value
