"""Some elements of a large tensor, by which all of it is judged where further runs of eager are needed.

A run of eager keeps no more of such a tensor than these, so that many runs of a large model fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.judge.envelope import Bounds, Precision, real
from assay.harness.observe.observation import elements_at

LARGE = 1 << 17
"""Tensors of more elements are judged by some of them."""
EVEN = 1 << 16
"""So many of these lie at even distances."""
SUSPECTS = 1 << 15
"""So many at most are those that one run of eager does not settle: the ones that are furthest beyond their bound."""
AT_ONCE = 1 << 21
"""So many are looked at at once for those, in a dozen float64 numbers each."""
STRAYS = 1 << 12
"""So many more are the furthest from eager, in units in the last place."""


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Elements of a tensor of `shape`, at `places` in a row. The first `even` of them lie at even distances. The others
    are suspects, or far from eager. All suspects of the tensor are `share` times as many."""

    places: Tensor
    shape: tuple[int, ...]
    even: int
    share: float

    @property
    def numel(self) -> int:
        """How many elements the whole tensor has."""
        return torch.Size(self.shape).numel()

    def of(self, value: Tensor) -> Tensor:
        """These elements of a value; what has no others already is given as it is."""
        if value.numel() != self.numel:
            return value
        return elements_at(value, self.places)

    def index(self, element: int) -> tuple[int, ...]:
        """Where one of the elements is in the whole."""
        return tuple(int(each) for each in torch.unravel_index(self.places[element], self.shape))


def elements_of(ours: Tensor, eager: Tensor, truth: Tensor | None) -> Elements | None:
    """The elements by which a tensor is judged; None for one that is judged by all of them."""
    if eager.numel() <= LARGE or not (eager.is_floating_point() or eager.is_complex()):
        return None
    suspects = _suspects(ours, eager, truth)
    strays = _suspects(ours, eager, None)[:STRAYS]
    kept = torch.cat([suspects[:SUSPECTS], strays]).unique()
    even = torch.arange(0, eager.numel(), -(-eager.numel() // EVEN), device=kept.device)
    kept = kept[~torch.isin(kept, even)]
    share = max(1.0, suspects.numel() / SUSPECTS)
    return Elements(torch.cat([even, kept]), tuple(eager.shape), even.numel(), share)


def _suspects(ours: Tensor, eager: Tensor, truth: Tensor | None) -> Tensor:
    """Where elements are beyond the bound that one run of eager gives them around float64, the furthest first. Without
    float64 those are the ones that are not within a few units in the last place of eager."""
    anchor = truth if truth is not None and truth.shape == eager.shape else eager
    pieces = zip(*(each.reshape(-1).split(AT_ONCE) for each in (ours, eager, anchor)), strict=True)
    places, ratios = list[Tensor](), list[Tensor]()
    for number, piece in enumerate(pieces):
        one, other, centre = piece
        beyond = _beyond(one, other, centre, eager.numel())
        found = (beyond > 1).nonzero()[:, 0]
        places.append(found + number * AT_ONCE)
        ratios.append(beyond[found])
    return torch.cat(places)[torch.cat(ratios).argsort(descending=True)]


def _beyond(ours: Tensor, eager: Tensor, anchor: Tensor, numel: int) -> Tensor:
    """How many times its bound each element is off, of a tensor of `numel`; 0 for those within a few units in the last
    place of eager."""
    one, other, centre, precision = real(ours), real(eager), real(anchor), Precision.of(eager.dtype)
    off, error = ((each - centre).abs().nan_to_num(0.0, 0.0, 0.0) for each in (one, other))
    beyond = Bounds(centre.nan_to_num(0.0, 0.0, 0.0), precision, numel).beyond(off, error)
    beyond[(one - other).abs() <= precision.ulps(other.abs())] = 0.0
    return beyond.amax(-1) if ours.is_complex() else beyond
