"""Reductions, scans and contractions."""

from __future__ import annotations

from assay.suites.programs.operations.record import Operation, each, fixed
from assay.suites.programs.pen import (
    Drawn,
    Pen,
    Where,
    has_dims,
    has_elements,
    has_fractions,
    is_number,
    is_ordered,
    is_real,
)


def _along(name: str, template: str, where: Where, keeps: bool = True) -> Operation:
    """A reduction along a dimension that is not empty."""

    def draw(pen: Pen) -> Drawn:
        source = pen.tensor(lambda tensor: where(tensor) and tensor.dim() > 0)
        dim = pen.dim(source, least=1)
        keep = ", keepdim=True" if keeps and pen.choices.chance(30) else ""
        return Drawn(template.replace("DIM", f"{dim}{keep}"), (source,))

    return Operation(name, draw)


def _matmul(pen: Pen) -> Drawn:
    left = pen.tensor(lambda tensor: 1 <= tensor.dim() <= 3 and has_fractions(tensor))
    a = pen[left]

    def fits(b: object) -> bool:
        return 1 <= b.dim() <= 2 and b.dtype == a.dtype and b.shape[0] == a.shape[-1]  # type: ignore[attr-defined]

    return Drawn("{0} @ {1}", (left, pen.tensor(fits)))


def _gram(pen: Pen) -> Drawn:
    return Drawn("{0} @ {0}.mT", (pen.tensor(lambda tensor: 2 <= tensor.dim() <= 3 and has_fractions(tensor)),))


REDUCTION = (
    *each("sum", "{0}.NAME()"),
    *each("mean", "{0}.NAME()", has_fractions),
    *each("amax amin", "{0}.NAME()", lambda tensor: is_ordered(tensor) and has_elements(tensor)),
    _along("sum_dim", "{0}.sum(DIM)", is_number),
    _along("mean_dim", "{0}.mean(DIM)", has_fractions),
    _along("amax_dim", "{0}.amax(DIM)", is_ordered),
    _along("max_dim", "{0}.max(DIM).values", is_ordered),
    _along("argmin_dim", "{0}.argmin(DIM)", lambda tensor: is_number(tensor) and is_ordered(tensor)),
    _along("prod_dim", "{0}.prod(DIM)", is_number),
    _along("var_dim", "{0}.var(DIM)", lambda tensor: is_real(tensor) and min(tensor.shape, default=0) > 1),
    _along("cumsum", "{0}.cumsum(DIM)", is_number, keeps=False),
    _along("softmax", "{0}.softmax(DIM)", is_real, keeps=False),
    _along("sort", "{0}.sort(DIM, stable=True).values".replace("(DIM, stable", "(dim=DIM, stable"), is_ordered, False),
    fixed("any", "{0}.any()"),
    Operation("matmul", _matmul),
    Operation("gram", _gram),
    fixed("numel", "{0}.sum() * {0}.numel()", has_dims(1)),
)
