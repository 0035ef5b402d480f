"""What the acts of a case are given: its numbers and others, copied afresh for every run of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from assay.harness.calls.clone import Call, CloneError, Convert, copy_call
from assay.harness.calls.tree import walk_call
from assay.harness.case import Case
from assay.harness.observe.observation import BRIEFLY, Observation, Script, observe
from assay.harness.protocol.acts import FEW, FRESH, NONE, ONE, PLACED, SAME, THRICE, TWICE, Act, Protocol, chosen, steps
from assay.harness.protocol.fresh_numbers import (
    Make,
    blotted,
    expanded,
    first_rows,
    is_tied,
    longer,
    moved_state,
    nothing,
    placed,
    relaid,
    state_of,
    strayed,
    turned,
    with_numbers,
)
from assay.harness.protocol.other_dtypes import Narrowest, in_other, least_bits, other_dtypes

Key = tuple[int, str, bool]
"""Which numbers a call has, of which sizes, and whether in the other dtype."""
ROWS: Mapping[str, int] = {NONE: 0, ONE: 1}
"""How many rows a call has of which some are left out."""
FURTHER_ROWS: Mapping[str, int] = {TWICE: 1, THRICE: 2}
"""How often a call has as many rows again."""
KEPT = 1 << 26
"""The numbers that a program's state is moved to are made once for all runs, while there are no more of them."""
MOST_BYTES = 1 << 29
"""Of parameters and gradients that a run keeps. Above that, a case has few acts, unless all are asked for."""


def acts_for(case: Case, mode: str, thorough: bool = False, state_bytes: int = 0) -> Protocol:
    """The acts that a case goes through. They are few for a case that brings a scenario.

    They are few as well where a run of all would keep too much memory. Each act's parameters and gradients are kept
    until all runs are compared.
    """
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
    skipped: frozenset[int] = frozenset()
    """The acts that are left out of a run."""
    _pristine: dict[Key, Call] = field(default_factory=dict)
    _moved: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)

    def script(self, convert: Convert | None = None, watches_leaks: bool = False) -> Script:
        """A run's objects. The function is one; each act that is given tensors of its own has a copy of them."""
        first = copy_call(self.own, convert)
        calls: list[Call | None] = [first]
        for index, act in enumerate(self.acts[1:], 1):
            is_made = act.calls and index not in self.skipped
            calls.append(self._copy(act, first, convert) if is_made else None)
        another = (lambda: self._copy(Act(1), first, convert)) if watches_leaks and self.watches_leaks else None
        numbers = functools.partial(self._state, convert=convert)
        calls = list(self._numbered(calls))
        own = state_of(self.own.function) if convert is None else {}
        pristine = {path: tensor.detach() for path, tensor in own.items()}
        dtypes = other_dtypes(convert)
        return Script(self.acts, calls, numbers, another, dtypes, pristine=pristine, skipped=self.skipped)

    def without(self, eager: Sequence[Observation]) -> Scripts:
        """The same with the case's own numbers and sizes where eager does not take the others."""
        if any(act.expands for act in self.acts) and _writes_arguments(eager):
            return self._as_usual("expands")
        if any(act.strays for act in self.acts) and not _refuses_indices(self.acts, eager):
            return self._as_usual("strays")
        if eager[0].error is not None:
            return self
        if (way := _spoiling_way(self.acts, eager)) is not None:
            return self._as_usual(way)
        spoiled = {
            (act.numbers, act.sizes, act.in_other_dtype)
            for act, step in zip(self.acts, eager, strict=True)
            if step.error is not None and step.error.during == "call" and act != self.acts[0] and not act.strays
        }
        acts = tuple(_mended(act, spoiled) for act in self.acts)
        return self if acts == self.acts or self.case.numbers else dataclasses.replace(self, acts=acts)

    def _as_usual(self, way: str) -> Scripts:
        usual = getattr(Act(), way)
        return dataclasses.replace(self, acts=tuple(dataclasses.replace(act, **{way: usual}) for act in self.acts))

    def in_dtypes_it_takes(self, seed: int) -> Scripts:
        """The same, all of it in the program's own dtype where eager does not take the other one, or calls in that
        would show nothing (harness/protocol/other_dtypes.py)."""
        if not any(act.in_other_dtype for act in self.acts) or self._takes_other_dtype(seed):
            return self
        return dataclasses.replace(
            self, acts=tuple(dataclasses.replace(act, in_other_dtype=False) for act in self.acts)
        )

    def _takes_other_dtype(self, seed: int) -> bool:
        if is_tied(self.own):
            return False
        try:
            converted = dataclasses.replace(self.moved(in_other), acts=(Act(1, back=int(self.mode == "train")),))
            script = converted.script()
        except CloneError:
            return False
        with Narrowest() as seen:
            (step,) = observe(script, self.mode, seed, watch=BRIEFLY)
        tensors = walk_call(self.own.function, self.own.args, self.own.kwargs).tensors.values()
        return step.error is None and not step.uses_random and seen.bits >= least_bits(tensors)

    def of(self, indices: Collection[int]) -> Scripts:
        """The same of some acts alone; those between them are left out."""
        count = 1 + max(indices)
        return dataclasses.replace(self, acts=self.acts[:count], skipped=frozenset(range(count)) - set(indices))

    def moved(self, move: Convert) -> Scripts:
        """The same of other numbers, which `move` makes of the case's own."""
        return dataclasses.replace(self, own=copy_call(self.own, move), _pristine={}, _moved={})

    def _copy(self, act: Act, first: Call, convert: Convert | None) -> Call:
        """The arguments of an act, copied afresh, for the function of the run."""
        pristine = self._with((act.numbers, act.sizes, act.in_other_dtype))
        if is_tied(pristine):
            if self.mode == "infer" or not (first.leaves or "fresh" in self.case.tags):
                return first
            made = copy_call(pristine, convert)
        else:
            made = copy_call(Call(nothing, pristine.args, pristine.kwargs), convert)
            made = placed(made) if act.given == PLACED and not made.leaves else made
            made = turned(made) if act.turns else made
            made = relaid(made) if act.relays and not made.leaves else made
            made = expanded(made) if act.expands and not made.leaves else made
            made = blotted(made) if act.blots and not made.leaves else made
            made = strayed(made) if act.strays and not made.leaves and _is_on_cpu(first) else made
        return Call(first.function, made.args, made.kwargs, first.leaves | made.leaves)

    def _with(self, key: Key) -> Call:
        if key not in self._pristine:
            self._pristine[key] = self._made(*key)
        return self._pristine[key]

    def _made(self, numbers: int, sizes: str, is_other: bool) -> Call:
        if is_other:
            own = self._with((numbers, sizes, False))
            return copy_call(Call(nothing, own.args, own.kwargs), in_other)
        made = with_numbers(self.own, self.make, numbers)
        if sizes in ROWS:
            return first_rows(made, ROWS[sizes])
        for more in range(1, FURTHER_ROWS.get(sizes, 0) + 1):
            made = longer(made, self._with((numbers + more, "", False)))
        return made

    def _state(self, which: int, is_other: bool, convert: Convert | None) -> Mapping[str, Tensor]:
        if which in self._moved:
            moved = self._moved[which]
        else:
            found = {path: moved_state(tensor, which) for path, tensor in state_of(self.own.function).items()}
            moved = {path: value for path, value in found.items() if value is not None}
            if _count(moved) + sum(map(_count, self._moved.values())) <= KEPT:
                self._moved[which] = moved
        if is_other:
            moved = {path: in_other(value) for path, value in moved.items()}
        return {path: convert(value) if convert else value for path, value in moved.items()}

    def _numbered(self, calls: Sequence[Call | None]) -> Sequence[Call | None]:
        """The calls, each with the Python numbers that the case has for it, as far as the acts go."""
        if not self.case.numbers:
            return calls
        pairs = zip(calls, self.case.numbers[: len(calls)], strict=True)
        return [call and dataclasses.replace(call, args=(*call.args, *numbers)) for call, numbers in pairs]


def _count(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


UNUSUAL = ("within", "freezes", "turns", "relays", "expands", "blots", "strays")
"""How else a call may be made, by the field of its act."""


def _spoiling_way(acts: Protocol, eager: Sequence[Observation]) -> str | None:
    """The way of calling after which eager raises: that of the first act that does, or of the nearest before it. None
    where no act raises, or nothing was unusual until then, or the sizes or the dtype of the act are."""
    raises = (n for n, step in enumerate(eager) if step.error is not None and not _is_meant_to_raise(acts[n]))
    first = next(raises, -1)
    if first >= 0 and (acts[first].sizes or acts[first].in_other_dtype):
        return None
    return next((way for act in reversed(acts[: first + 1]) for way in UNUSUAL if getattr(act, way)), None)


REFUSALS = (IndexError, RuntimeError)
"""What operators raise of an index that is out of range."""


def _is_meant_to_raise(act: Act) -> bool:
    return act.is_spent or act.strays


def _refuses_indices(acts: Protocol, eager: Sequence[Observation]) -> bool:
    """Whether eager refuses each call in which an index strays, and no act writes anything: what was written before an
    error, a compiled program may leave as it was."""
    if any(step.written for step in eager):
        return False
    strayed = [step.error for act, step in zip(acts, eager, strict=True) if act.strays]
    return all(error is not None and isinstance(error.error, REFUSALS) for error in strayed)


def _is_on_cpu(call: Call) -> bool:
    """Whether all of a call's tensors are: on a GPU, an index out of range ends the process."""
    tensors = walk_call(call.function, call.args, call.kwargs).tensors.values()
    return all(tensor.device.type == "cpu" for tensor in tensors)


def _writes_arguments(eager: Sequence[Observation]) -> bool:
    """Whether the program writes what it is given. Operators refuse to write an expanded tensor; a kernel of the
    program's own would write rows that the tensor does not have."""
    return any(path.startswith("input") for step in eager for path in step.written)


def _mended(act: Act, spoiled: Collection[Key]) -> Act:
    if (act.numbers, act.sizes, act.in_other_dtype) not in spoiled:
        return act
    if act.in_other_dtype:
        return dataclasses.replace(act, in_other_dtype=False)
    if act.sizes:
        return dataclasses.replace(act, sizes="")
    return dataclasses.replace(act, numbers=1, given=SAME if act.given == SAME else FRESH)
