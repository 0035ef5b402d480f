"""Whether two tensors of symbolic sizes over one storage are shown to have no element in common.

v[:, :, 1], v[:, :, 0]      they step by whole rows of `v`, and lie at two places of a row
x[:, :3], x[:, 3:]          they step by whole rows of `x`, and are two parts of a row
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from assay.compiler.ir.tensors.layout.strides import Number, extent

Condition = bool | torch.SymBool


def lie_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether no element of one is an element of the other. False where that is not shown.

    What it follows from becomes a guard. Sizes that only the data tells have no guards: there it holds for all sizes.
    """
    if one.element_size() != other.element_size():
        return False
    periods = (None, *(step for value in (one, other) for step in value.stride()))
    return any(_lie_apart(*pair, period) for pair in ((one, other), (other, one)) for period in periods)


def _lie_apart(one: torch.Tensor, other: torch.Tensor, period: Number | None) -> bool:
    """Whether `other` begins behind the end of `one`. Steps by whole periods count for nothing if there is a period,
    and `other` also has to end before `one` begins again.
    """
    facts: list[Condition] = []

    def holds(condition: Condition) -> bool:
        facts.append(condition)
        return _holds(condition)

    if period is not None and not holds(period > 0):
        return False
    distance = other.storage_offset() - one.storage_offset()
    if period is not None:
        distance = operator.mod(distance, period)
    if not holds(_length(one, period, holds) <= distance):
        return False
    if period is not None and not holds(distance + _length(other, period, holds) <= period):
        return False
    return all(_guarded(fact) for fact in facts)


def _length(value: torch.Tensor, period: Number | None, holds: Callable[[Condition], bool]) -> Number:
    """How many elements of memory a tensor spans, its steps by whole periods left out."""
    steps = list(zip(value.shape, value.stride(), strict=True))
    if period is not None:
        steps = [(size, step) for size, step in steps if not holds(operator.mod(step, period) == 0)]
    return extent([size for size, _ in steps], [step for _, step in steps])


def _holds(condition: Condition) -> bool:
    """Whether a condition holds for the sizes of the recording, or for all sizes where it has none."""
    if isinstance(condition, bool):
        return condition
    return bool(condition.node.hint) if condition.node.has_hint() else statically_known_true(condition)


def _guarded(condition: Condition) -> bool:
    """Keeps what a condition is as a guard; of one that depends on data there is none."""
    if isinstance(condition, torch.SymBool) and condition.node.has_hint():
        bool(condition)
    return True
