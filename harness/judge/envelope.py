"""How far each number may be from a centre, by what eager itself is off at numbers of like magnitude.

This is the bound of rule 3 of harness/judge/tolerance.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

FACTOR = 4.0
ULPS = 4.0
LIKE = 64
"""So many elements of like magnitude make an envelope, and so many a tensor that has an rms."""
SPAN = LIKE // 2
AT_ONCE = 1 << 18
"""So many errors at a time stay in a processor's cache."""
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


def bound_of(centre: Tensor, errors: Sequence[Tensor], precision: Precision) -> Tensor:
    """How far each element may be from the centre, by rule 3, where eager's runs have these errors."""
    return Bounds(centre, precision).of(errors)


@dataclass(slots=True)
class Bounds:
    """The bounds around a centre, by any runs. Its elements are put into the order of their magnitudes once."""

    centre: Tensor
    precision: Precision
    _order: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def of(self, errors: Sequence[Tensor]) -> Tensor:
        """How far each element may be from the centre, where runs have these errors."""
        return FACTOR * self._envelope(errors) + self.precision.ulps(self.centre.abs())

    def hold(self, off: Tensor, errors: Sequence[Tensor], is_near: Tensor) -> bool:
        """Whether each element that is off by so much `is_near`, or within its bound.

        An element's own errors are the least that its bound rests on, and the largest of all are the most.
        """
        own = greatest_of(errors) if errors else torch.zeros_like(off)
        ulps = self.precision.ulps(self.centre.abs())
        if bool(((off <= FACTOR * own + ulps) | is_near).all()):
            return True
        most = own.max() if own.numel() else own.new_zeros(())
        if bool(((off > FACTOR * most + ulps) & ~is_near).any()):
            return False
        return bool(((off <= self.of(errors)) | is_near).all())

    def _envelope(self, errors: Sequence[Tensor]) -> Tensor:
        """For each element the largest error at elements of like magnitude."""
        if not errors or self.centre.numel() == 0:
            return torch.zeros_like(self.centre)
        worst = greatest_of(errors)
        if self.centre.numel() <= 2 * SPAN + 1:
            return _envelope_of_few(self.centre.abs(), worst)
        worst = worst.reshape(-1)
        places = self._told_places(worst)
        found = torch.zeros_like(worst).scatter_(0, places, _largest_beside(worst.index_select(0, places)))
        return found.view(self.centre.shape)

    def _told_places(self, worst: Tensor) -> Tensor:
        """Where elements are that say something, in the order of their magnitudes. Zeros without an error are the
        least of all, so that a few of them are as good as all; the gradient of an embedding has millions."""
        zeros, others = self._ordered()
        if not zeros.numel():
            return others
        is_blank = worst[zeros] == 0
        return torch.cat([zeros[is_blank][:SPAN], zeros[~is_blank], others])

    def _ordered(self) -> tuple[Tensor, Tensor]:
        """Where zeros are, and where all other elements are in the order of their magnitudes."""
        if self._order is None:
            magnitude = self.centre.abs().reshape(-1)
            zeros = (magnitude == 0).nonzero()[:, 0]
            if not zeros.numel():
                self._order = zeros, _order_of(magnitude)
            else:
                others = (magnitude != 0).nonzero()[:, 0]
                self._order = zeros, others.index_select(0, _order_of(magnitude.index_select(0, others)))
        return self._order


def _order_of(magnitude: Tensor) -> Tensor:
    """The order of positive numbers: that of their bits. Of float64 numbers the first half of these is sorted, in half
    the time: what is equal to 6 digits is of like magnitude in any order."""
    is_wide = magnitude.dtype is torch.float64
    keys = (magnitude.view(torch.int64) >> 32).to(torch.int32) if is_wide else magnitude.view(torch.int32)
    return keys.argsort(stable=True)


def _largest_beside(errors: Tensor) -> Tensor:
    """The largest among each error and the `SPAN` on either side of it."""
    padded = torch.nn.functional.pad(errors, (SPAN, SPAN))
    starts = range(0, errors.numel(), AT_ONCE)
    return torch.cat([_largest_in_windows(padded[start : start + AT_ONCE + 2 * SPAN]) for start in starts])


def _largest_in_windows(errors: Tensor) -> Tensor:
    """The largest of each `2 * SPAN + 1` in a row: windows of 2, 4, 8 and so on, and one more."""
    found, reach = errors, 1
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
