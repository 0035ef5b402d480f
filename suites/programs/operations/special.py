"""Random draws, autograd functions, custom operators that write, a dead branch."""

from __future__ import annotations

from assay.suites.programs.operations.record import Operation, fixed
from assay.suites.programs.pen import Drawn, Pen, has_elements, has_fractions, is_number, is_real

GENERATOR = "generator=torch.Generator().manual_seed(3)"


def _dropout(pen: Pen) -> Drawn:
    return Drawn("torch.nn.functional.dropout({0}, 0.5)", (pen.tensor(is_real),))


def _swap(pen: Pen) -> Drawn:
    one = pen.tensor(lambda tensor: has_elements(tensor) and is_number(tensor))
    shape, dtype = pen[one].shape, pen[one].dtype
    other = pen.tensor(lambda tensor: tensor.shape == shape and tensor.dtype == dtype)
    return Drawn("torch.ops.programs.swap({0}, {1})", (one, other))


def _dead(pen: Pen) -> Drawn:
    return Drawn("{0}.add_(1) if {0}.dim() > 6 else {0}", (pen.tensor(is_number),))


SPECIAL = (
    fixed("rand_like", "torch.rand_like({0})", is_real),
    fixed("bernoulli_", "{0}.bernoulli_(0.5)", is_real, 0),
    fixed("bernoulli_of_generator", f"{{0}}.bernoulli_(0.5, {GENERATOR})", is_real, 0),
    fixed("rand_of_generator", f"torch.rand({{0}}.shape, {GENERATOR})"),
    fixed("normal_", "{0}.normal_()", is_real, 0),
    Operation("dropout", _dropout),
    fixed("Square", "Square.apply({0})", has_fractions),
    fixed("DoubleInPlace", "DoubleInPlace.apply({0})", has_fractions),
    fixed("Viewed", "Viewed.apply({0})", has_fractions),
    fixed("Rounded", "Rounded.apply({0})", is_real, 2),
    fixed("increment", "torch.ops.programs.increment({0})", is_number, 0),
    Operation("swap", _swap),
    Operation("dead_branch", _dead),
)
