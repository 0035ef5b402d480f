"""Gathers, scatters, selections and their in-place forms, with duplicate indices; joining."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.suites.programs.operations.record import Operation
from assay.suites.programs.operations.views import sliced, strided
from assay.suites.programs.pen import Drawn, NoOperand, Pen, has_dims, has_elements, is_number

COUNT = 3


def _filled(tensor: Tensor) -> bool:
    return 1 <= tensor.dim() <= 3 and tensor.numel() > 0


def _filled_numbers(tensor: Tensor) -> bool:
    return _filled(tensor) and is_number(tensor)


def _full_index(pen: Pen, source: str, dim: int) -> str:
    """An index tensor of the source's rank, of size 1 in all but `dim`."""
    rank = pen[source].dim()
    sizes = ["1"] * rank
    sizes[dim] = str(COUNT)
    return f"{pen.indices(pen[source].shape[dim], COUNT)}.view({', '.join(sizes)})"


def _gather(pen: Pen) -> Drawn:
    source = pen.tensor(_filled)
    dim = pen.choices.below(pen[source].dim())
    return Drawn(f"{{0}}.gather({dim}, {_full_index(pen, source, dim)})", (source,))


def _index(pen: Pen) -> Drawn:
    source = pen.tensor(_filled)
    dim = pen.choices.below(pen[source].dim())
    return Drawn("{0}[" + ":, " * dim + pen.indices(pen[source].shape[dim], COUNT) + "]", (source,))


def _index_by_mask(pen: Pen) -> Drawn:
    return Drawn("{0}[{0} != 0]", (pen.tensor(has_dims(1)),))


def _index_select(pen: Pen) -> Drawn:
    source = pen.tensor(_filled)
    dim = pen.dim(source, least=1)
    return Drawn(f"{{0}}.index_select({dim}, {pen.indices(pen[source].shape[dim], COUNT)})", (source,))


def _scatter(name: str) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(_filled_numbers)
        dim = pen.choices.below(pen[target].dim())
        values = f"torch.ones_like({{0}}).narrow({dim}, 0, 1).repeat_interleave({COUNT}, {dim})"
        index = _full_index(pen, target, dim)
        if name == "scatter" and pen.choices.chance(50):
            values = pen.scalar(target)
        return Drawn(f"{{0}}.{name}({dim}, {index}, {values})", (target,))

    return Operation(name, draw)


def _rows(pen: Pen, name: str) -> Drawn:
    """Rows of the target replaced or added to: the source is rows of another tensor, or ones."""
    target = pen.tensor(_filled_numbers)
    dim = pen.choices.below(pen[target].dim())
    index = pen.indices(pen[target].shape[dim], COUNT) if name == "index_add_" else _distinct(pen, target, dim)
    source = f"torch.ones_like({{0}}).index_select({dim}, {index})"
    return Drawn(f"{{0}}.{name}({dim}, {index}, {source})", (target,), 0)


def _distinct(pen: Pen, target: str, dim: int) -> str:
    """Indices without duplicates, where with them the result depends on the order of the writes."""
    size = pen[target].shape[dim]
    first = pen.choices.below(size)
    return f"torch.tensor({sorted({first, (first + 1) % size})}, dtype=torch.int64, device={{0}}.device)"


def _index_put(pen: Pen) -> Drawn:
    target = pen.tensor(_filled_numbers)
    size = pen[target].shape[0]
    accumulate = pen.choices.chance(50)
    index = pen.indices(size, COUNT) if accumulate else _distinct(pen, target, 0)
    flag = ", accumulate=True" if accumulate else ""
    shape = pen[target].shape[1:]
    dtype = pen[target].dtype
    if pen.choices.chance(50):
        value = pen.tensor(lambda tensor: tensor.dtype == dtype and tensor.shape in ((), shape))
        return Drawn(f"{{0}}.index_put_(({index},), {{1}}{flag})", (target, value), 0)
    return Drawn(f"{{0}}.index_put_(({index},), {{0}}.new_ones(()){flag})", (target,), 0)


def _slice_scatter(pen: Pen) -> Drawn:
    target = pen.tensor(_filled)
    source = "{0}[" + (part := sliced(pen, pen[target].shape[0])) + "]"
    start, stop, *step = part.split(":")
    steps = f", {step[0]}" if step and step[0] else ""
    return Drawn(f"{{0}}.slice_scatter({source} + 1, 0, {start or 0}, {stop}{steps})", (target,))


def _select_scatter(pen: Pen) -> Drawn:
    target = pen.tensor(_filled)
    dim = pen.choices.below(pen[target].dim())
    index = pen.choices.below(pen[target].shape[dim])
    return Drawn(f"{{0}}.select_scatter({{0}}.select({dim}, {index}) + 1, {dim}, {index})", (target,))


def _diagonal_scatter(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: tensor.dim() == 2)
    return Drawn("{0}.diagonal_scatter({0}.diagonal() + 1)", (target,))


def _as_strided_scatter(pen: Pen) -> Drawn:
    target = pen.tensor(lambda tensor: has_elements(tensor) and tensor.is_contiguous() and tensor._base is None)
    length = pen[target].untyped_storage().nbytes() // pen[target].element_size()
    place = strided(pen, length)
    return Drawn(f"{{0}}.as_strided_scatter({{0}}.as_strided({place}) + 1, {place})", (target,))


def _joined(name: str) -> Operation:
    def draw(pen: Pen) -> Drawn:
        one = pen.tensor(has_dims(1) if name == "cat" else has_dims(0))
        shape = pen[one].shape
        other = pen.tensor(lambda tensor: tensor.shape == shape)
        dim = pen.choices.below(max(1, len(shape)))
        return Drawn(f"torch.{name}([{{0}}, {{1}}], {dim})", (one, other))

    return Operation(name, draw)


def _flip(pen: Pen) -> Drawn:
    source = pen.tensor(has_dims(1))
    return Drawn(f"{{0}}.flip({pen.choices.below(pen[source].dim())})", (source,))


def _roll(pen: Pen) -> Drawn:
    return Drawn("{0}.roll(1)", (pen.tensor(_filled),))


def _take(pen: Pen) -> Drawn:
    index = pen.tensor(lambda tensor: tensor.dtype == torch.int64 and has_elements(tensor))
    source = pen.tensor(lambda tensor: _filled(tensor))
    if source == index:
        raise NoOperand
    return Drawn("{0}[{1}.remainder({0}.shape[0])]", (source, index))


INDEXING = (
    Operation("gather", _gather),
    *(Operation("index", _index) for _ in range(2)),
    Operation("index_by_mask", _index_by_mask),
    Operation("index_by_tensor", _take),
    Operation("index_select", _index_select),
    _scatter("scatter"),
    _scatter("scatter_add"),
    Operation("index_add_", lambda pen: _rows(pen, "index_add_")),
    Operation("index_copy_", lambda pen: _rows(pen, "index_copy_")),
    *(Operation("index_put_", _index_put) for _ in range(2)),
    Operation("slice_scatter", _slice_scatter),
    Operation("select_scatter", _select_scatter),
    Operation("diagonal_scatter", _diagonal_scatter),
    Operation("as_strided_scatter", _as_strided_scatter),
    _joined("cat"),
    _joined("stack"),
    Operation("flip", _flip),
    Operation("roll", _roll),
)
