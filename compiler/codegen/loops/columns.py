"""How a reduction over rows is shared among threads: in parts of the rows, or by columns.

    y[j] = sum_r x[r, j]    by columns:  each thread some columns, of which it reads a piece of every row
                            in parts:    each thread some rows, whole, with a total for every column; then the totals

In parts memory is read on and on, and two columns are enough for all threads. What the parts found is joined in their
order, and how many they are depends on nothing but the sizes: the result does not depend on the number of threads.

Beside a nest that goes through the same rows for another reason, parts cost no reading at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.compiler.codegen.loops.nest import Nest, segments
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Reduce
from assay.compiler.ir.loops.rewrite import nodes
from assay.compiler.machine import number

MOST_PARTS = 64
"""Parts of the rows, each of which a thread takes: what they find is joined one part after another."""
LEAST_ROWS = 64
"""Rows of a part: joining then costs a thirty-second part of reading."""
NARROW = 128
"""Columns that are too few to share among threads."""
MOST_FOUND = 1 << 20
"""Bytes of the memory in which the parts keep what they find until it is joined."""
AHEAD = 1024
"""Elements ahead of what is read at which is asked for."""
ITEM = 8
"""Bytes of a total, at most."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`rows` x `width` elements in `parts` of `span` rows each; `lanes` columns are reduced side by side."""

    rows: int
    width: int
    parts: int
    lanes: int

    @property
    def span(self) -> int:
        return -(-self.rows // self.parts)

    @property
    def ahead(self) -> int:
        """How many rows ahead memory is asked for; 0 for not at all."""
        return -(-AHEAD // self.width) if number("fetched_columns") <= self.width < number("long_columns") else 0


def cut_of_rows(nest: Nest, reductions: Sequence[Reduce]) -> Cut | None:
    """The parts of a nest whose one loop is that of the columns; None where it runs by columns."""
    if len(nest.loops) != 1 or len({reduction.loops for reduction in reductions}) != 1:
        return None
    if any(isinstance(inner, Reduce) for reduction in reductions for inner in nodes(reduction.body)):
        return None
    (column,), row = nest.loops, reductions[0].loops[0]
    if len(reductions[0].loops) != 1 or not isinstance(column.extent, Int) or not isinstance(row.extent, Int):
        return None
    rows, width, count = row.extent.value, column.extent.value, len(reductions)
    parts = min(MOST_PARTS, rows // LEAST_ROWS, MOST_FOUND // (max(width, 1) * ITEM * count))
    least = number("narrow_cut_elements" if width <= NARROW else "wide_cut_elements")
    if rows * width < least or parts < 4:
        return None
    lanes = min(-(-width // 64) * 64, max(64, number("column_lanes") // count // 64 * 64))
    return Cut(rows, width, parts, lanes)


def cut_beside(rows: Nest, columns: Nest, reductions: Sequence[Reduce]) -> Cut | None:
    """The parts in which what a nest over rows and columns needs is computed together with reductions over the same
    rows for each of the columns; None where the two run one after the other."""
    if len(rows.loops) != 2 or columns.loops != rows.loops[1:] or rows.lane is not None:
        return None
    row, column = rows.loops
    if not isinstance(row.extent, Int) or not isinstance(column.extent, Int) or not reductions:
        return None
    if any(r.loops != (row,) or any(isinstance(e, Reduce) for e in nodes(r.body)) for r in reductions):
        return None
    parts = min(MOST_PARTS, row.extent.value // LEAST_ROWS)
    if len(segments(column, rows.stores)) > 1:
        return None
    if parts < 4 or column.extent.value * len(reductions) > number("column_totals"):
        return None
    return Cut(row.extent.value, column.extent.value, parts, column.extent.value)
