"""What the acts of a case are given: its numbers and others, copied afresh for every run of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from harness.calls.clone import Call, Convert, copy_call
from harness.case import Case
from harness.observe.observation import Observation, Script
from harness.protocol.acts import FEW, FRESH, SAME, Act, Protocol, chosen, steps
from harness.protocol.fresh_numbers import Make, is_tied, moved_state, nothing, state_of, twice, with_numbers

Key = tuple[int, str]
"""Which numbers a call has, and of which sizes."""
KEPT = 1 << 20
"""The numbers of a program's state are made once for all runs where there are no more of them."""
MOST_BYTES = 1 << 30
"""Of parameters and gradients that a run keeps. Above that, a case has few acts, unless all are asked for."""


def acts_for(case: Case, mode: str, thorough: bool = False, state_bytes: int = 0) -> Protocol:
    """What a case goes through; few acts where it brings a scenario, and where a run of all would keep too much, as
    each act's parameters and gradients are kept until all runs are compared."""
    if case.numbers:
        return steps(mode, len(case.numbers))
    acts = chosen(case.name, mode, thorough)[1]
    is_large = not thorough and 2 * state_bytes * len(acts) > MOST_BYTES
    return FEW[mode] if case.scenario is not None or is_large else acts


def bytes_of_state(call: Call) -> int:
    """The memory of the parameters and buffers of a call."""
    return sum(value.numel() * value.element_size() for value in state_of(call.function).values())


@dataclass(frozen=True, slots=True)
class Scripts:
    """The acts of a case in a mode, and its pristine calls, from which the calls of each run are copied."""

    case: Case
    mode: str
    acts: Protocol
    own: Call
    make: Make
    watches_leaks: bool = True
    _pristine: dict[Key, Call] = field(default_factory=dict)
    _moved: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)

    def script(self, convert: Convert | None = None, watches_leaks: bool = False) -> Script:
        """A run's objects. The function is one; each act that is given tensors of its own has a copy of them."""
        first = copy_call(self.own, convert)
        calls: list[Call | None] = [first]
        for act in self.acts[1:]:
            calls.append(self._copy(act, first, convert) if act.calls else None)
        another = (lambda: self._copy(Act(1), first, convert)) if watches_leaks and self.watches_leaks else None
        return Script(self.acts, list(self._numbered(calls)), lambda which: self._state(which, convert), another)

    def without(self, eager: Sequence[Observation]) -> Scripts:
        """The same with the case's own numbers and sizes where eager does not take the others."""
        if eager[0].error is not None:
            return self
        spoiled = {
            (act.numbers, act.sizes)
            for act, step in zip(self.acts, eager, strict=True)
            if step.error is not None and step.error.during == "call" and act != self.acts[0]
        }
        acts = tuple(_mended(act, spoiled) for act in self.acts)
        return self if acts == self.acts or self.case.numbers else dataclasses.replace(self, acts=acts)

    def first(self, count: int) -> Scripts:
        """The same as far as its first acts go, so many of them."""
        return self if count >= len(self.acts) else dataclasses.replace(self, acts=self.acts[:count])

    def moved(self, move: Convert) -> Scripts:
        """The same of other numbers, which `move` makes of the case's own."""
        return dataclasses.replace(self, own=copy_call(self.own, move), _pristine={}, _moved={})

    def _copy(self, act: Act, first: Call, convert: Convert | None) -> Call:
        """The arguments of an act, copied afresh, for the function of the run."""
        pristine = self._with((act.numbers, act.sizes))
        if is_tied(pristine):
            if self.mode == "infer" or not (first.leaves or "fresh" in self.case.tags):
                return first
            made = copy_call(pristine, convert)
        else:
            made = copy_call(Call(nothing, pristine.args, pristine.kwargs), convert)
        return Call(first.function, made.args, made.kwargs, first.leaves | made.leaves)

    def _with(self, key: Key) -> Call:
        if key not in self._pristine:
            numbers, sizes = key
            made = with_numbers(self.own, self.make, numbers)
            self._pristine[key] = twice(made, self._with((numbers + 1, ""))) if sizes else made
        return self._pristine[key]

    def _state(self, which: int, convert: Convert | None) -> Mapping[str, Tensor]:
        if which in self._moved:
            moved = self._moved[which]
        else:
            found = {path: moved_state(tensor, which) for path, tensor in state_of(self.own.function).items()}
            moved = {path: value for path, value in found.items() if value is not None}
            if sum(value.numel() for value in moved.values()) <= KEPT:
                self._moved[which] = moved
        return {path: convert(value) if convert else value for path, value in moved.items()}

    def _numbered(self, calls: Sequence[Call | None]) -> Sequence[Call | None]:
        """The calls, each with the Python numbers that the case has for it."""
        if not self.case.numbers:
            return calls
        pairs = zip(calls, self.case.numbers, strict=True)
        return [call and dataclasses.replace(call, args=(*call.args, *numbers)) for call, numbers in pairs]


def _mended(act: Act, spoiled: Collection[Key]) -> Act:
    if (act.numbers, act.sizes) not in spoiled:
        return act
    if act.sizes:
        return dataclasses.replace(act, sizes="")
    return dataclasses.replace(act, numbers=1, given=SAME if act.given == SAME else FRESH)
