"""Where a drawn program's choices come from: a seed, or Hypothesis, which can then shrink them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices made of one primitive: `below(n)` gives an integer from 0 to n - 1. The simplest choice is always 0."""

    below: Callable[[int], int]

    @staticmethod
    def seeded(seed: str) -> Choices:
        """Choices that the seed alone decides, the same on every machine."""
        return Choices(random.Random(seed).randrange)

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, which are not empty."""
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[tuple[int, Item]]) -> Item:
        """One of the items, each with its weight."""
        left = self.below(sum(weight for weight, _ in items))
        for weight, item in items:
            left -= weight
            if left < 0:
                return item
        raise AssertionError("weights sum to less than their sum")

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent
