"""How far each number may be from a centre, by what eager itself is off at numbers of like magnitude.

This is the bound of rule 3 of harness/judge/tolerance.py.

`FACTOR` times eager's largest error leaves room for a backend of `TWICE` eager's error. Let errors be normal, of like
size in an envelope, which has the 65 elements of `RUNS` runs. Of `n` elements, the largest error grows as `sqrt(ln n)`.
The integral over both distributions tells how many are beyond a factor. Of `MANY` elements, one is beyond `FACTOR` in
one tensor of several thousand. For that share to stay the same, the square of the factor has to grow by 1 with `ln n`.
So it does, up to `MOST`. A test has the integral.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

FACTOR, MOST = 4.0, 5.0
TWICE, RUNS, MANY = 2.0, 13, 100_000
ULPS = 4.0
LIKE = 64
"""So many elements of like magnitude make an envelope, and so many a tensor that has an rms."""
SPAN = LIKE // 2
INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}
"""Positive numbers have the order of their bits, which are sorted in half the time."""
SAMPLED = 1 << 17
"""Of more elements than these, evenly chosen ones make the envelopes: 64 of them still are of like magnitude."""
OWN_FACTOR = 4.0
"""In a small tensor elements of unlike magnitude are neighbours: there an element has its own errors, so many times."""


@dataclass(frozen=True, slots=True)
class Precision:
    """That of a dtype: the distance from 1 to the next number, and the smallest number."""

    epsilon: float
    smallest: float

    @staticmethod
    def of(dtype: torch.dtype) -> Precision:
        info = torch.finfo(dtype)
        return Precision(info.eps, info.smallest_normal * info.eps)

    def ulps(self, magnitude: Tensor) -> Tensor:
        """`ULPS` units in the last place of each magnitude."""
        return ULPS * (self.epsilon * magnitude + self.smallest)


def factor_of(numel: int) -> float:
    """How many times eager's error an element may be off in a tensor of so many."""
    return min(MOST, math.sqrt(FACTOR**2 + math.log(max(numel, MANY) / MANY)))


def bound_of(centre: Tensor, errors: Sequence[Tensor], precision: Precision) -> Tensor:
    """How far each element may be from the centre, by rule 3, where eager's runs have these errors."""
    return Bounds(centre, precision).of(errors)


@dataclass(slots=True)
class Bounds:
    """The bounds around a centre, by any runs. Its elements are put into the order of their magnitudes once.

    Of a large tensor, evenly chosen elements are put into order. Others lie between those of like magnitude.
    """

    centre: Tensor
    precision: Precision
    numel: int = 0
    """How many elements the tensor has, if the centre has only some of them."""
    _order: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    @property
    def factor(self) -> float:
        return factor_of(self.numel or self.centre.numel())

    def of(self, errors: Sequence[Tensor]) -> Tensor:
        """How far each element may be from the centre, where runs have these errors."""
        return self._at(None, errors)

    def hold(self, off: Tensor, errors: Sequence[Tensor], is_near: Tensor) -> bool:
        """Whether each element that is off by so much `is_near`, or within its bound.

        An element's own errors are the least that its bound rests on, and the largest of all are the most.
        """
        own = greatest_of(errors) if errors else torch.zeros_like(off)
        ulps = self.precision.ulps(self.centre.abs())
        is_open = ~((off <= self.factor * own + ulps) | is_near)
        if not bool(is_open.any()):
            return True
        if bool(((off > self.factor * own.max() + ulps) & is_open).any()):
            return False
        places = is_open.reshape(-1).nonzero()[:, 0]
        return bool((off.reshape(-1)[places] <= self._at(places, errors)).all())

    def beyond(self, off: Tensor, error: Tensor) -> Tensor:
        """How many times its bound each element is off, where one run has this error; 0 for what is within so many
        times its own."""
        ulps = self.precision.ulps(self.centre.abs())
        places = (off > self.factor * error + ulps).reshape(-1).nonzero()[:, 0]
        bounds = self._at(places, [error]).clamp(min=self.precision.smallest)
        found = torch.zeros_like(off)
        found.view(-1)[places] = off.reshape(-1)[places] / bounds
        return found

    def _at(self, places: Tensor | None, errors: Sequence[Tensor]) -> Tensor:
        """The bounds at some places in a row, or all of them."""
        magnitude = self.centre.abs()
        envelope = self._envelope(magnitude, places, errors)
        if places is not None:
            magnitude = magnitude.reshape(-1)[places]
        return self.factor * envelope + self.precision.ulps(magnitude)

    def _envelope(self, magnitude: Tensor, places: Tensor | None, errors: Sequence[Tensor]) -> Tensor:
        """For elements at places the largest error at elements of like magnitude."""
        numel = magnitude.numel()
        if not errors or numel == 0:
            found = torch.zeros_like(magnitude)
        elif numel <= 2 * SPAN + 1:
            found = _envelope_of_few(magnitude, greatest_of(errors))
        elif numel <= SAMPLED:
            worst = greatest_of(errors).reshape(-1)
            told = self._told_places(worst)
            around = _largest_beside(worst.index_select(0, told))
            found = self._with_zeros_alike(torch.zeros_like(worst).scatter_(0, told, around), worst)
            found = found.view(magnitude.shape)
        else:
            return self._between_chosen(magnitude, places, greatest_of(errors))
        return found if places is None else found.reshape(-1)[places]

    def _between_chosen(self, magnitude: Tensor, places: Tensor | None, worst: Tensor) -> Tensor:
        """The envelope where some elements alone are in order: that of the next of these, or an element's own error."""
        row, own = magnitude.reshape(-1), worst.reshape(-1)
        told = self._told_places(own)
        around, ladder = _largest_beside(own.index_select(0, told)), row.index_select(0, told)
        asked, own = (row, own) if places is None else (row[places], own[places])
        rank = torch.searchsorted(ladder, asked).clamp(max=told.numel() - 1)
        found = torch.maximum(around.index_select(0, rank), own)
        return found.view(magnitude.shape) if places is None else found

    def _with_zeros_alike(self, found: Tensor, worst: Tensor) -> Tensor:
        """An envelope in which all zeros have the largest error of any, where one in `LIKE` has an error.

        Zeros are of one magnitude, so that no order among them says which are beside each other. Of so many at even
        distances one has an error then.
        """
        zeros, _ = self._ordered()
        errors = worst[zeros]
        if zeros.numel() and LIKE * int(errors.count_nonzero()) >= zeros.numel():
            found[zeros] = found[zeros].clamp(min=float(errors.max()))
        return found

    def _told_places(self, worst: Tensor) -> Tensor:
        """Where elements are that say something, in the order of their magnitudes. Zeros without an error are the
        least of all, so that a few of them are as good as all; the gradient of an embedding has millions."""
        zeros, others = self._ordered()
        is_blank = worst[zeros] == 0
        return torch.cat([zeros[is_blank][:SPAN], zeros[~is_blank], others])

    def _ordered(self) -> tuple[Tensor, Tensor]:
        """Where zeros are, and where all other elements are in the order of their magnitudes."""
        if self._order is None:
            magnitude = self.centre.abs().reshape(-1)
            zeros, others = (_chosen(each.nonzero()[:, 0]) for each in (magnitude == 0, magnitude != 0))
            as_integers = magnitude.index_select(0, others).view(INTEGERS[magnitude.dtype])
            self._order = zeros, others.index_select(0, as_integers.argsort(stable=True))
        return self._order


def _chosen(places: Tensor) -> Tensor:
    """Places at even distances, where there are many: at least half of `SAMPLED`."""
    return places if places.numel() <= SAMPLED else places[:: -(-places.numel() // SAMPLED)]


def _largest_beside(errors: Tensor) -> Tensor:
    """The largest among each error and the `SPAN` on either side of it: windows of 2, 4, 8 and so on, and one more."""
    found, reach = torch.nn.functional.pad(errors, (SPAN, SPAN)), 1
    while reach < 2 * SPAN:
        found = torch.maximum(found[:-reach], found[reach:])
        reach *= 2
    return torch.maximum(found[:-1], found[1:])


def _envelope_of_few(magnitude: Tensor, worst: Tensor) -> Tensor:
    """The errors of a small tensor: the largest relative error of what did not cancel, or the element's own.

    For numbers that are nothing but rounding, it is the largest of those.
    """
    relative = worst / magnitude
    whole = relative[relative < 0.5]
    rate = whole.max() if whole.numel() else relative.new_zeros(())
    cancelled = worst[(worst > 0) & (relative >= 0.5)]
    rest = cancelled.max() if cancelled.numel() else relative.new_zeros(())
    own = torch.maximum(rate * magnitude, OWN_FACTOR * worst)
    return torch.minimum(worst.max(), torch.where(magnitude <= rest, torch.maximum(own, rest), own))


def greatest_of(runs: Sequence[Tensor]) -> Tensor:
    """The largest of the runs, element by element."""
    found = runs[0]
    for run in runs[1:]:
        found = torch.maximum(found, run)
    return found


def real(tensor: Tensor) -> Tensor:
    """The numbers in float64, complex ones as pairs."""
    plain = torch.view_as_real(tensor.to(torch.complex128)) if tensor.is_complex() else tensor
    return plain.to(torch.float64)
