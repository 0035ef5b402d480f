"""Runs of eager that say how far a right program may be from it: in float64, on neighbouring numbers, across kinks.

Each is a run of a case's acts, or of some of them. Nothing but numbers is looked at in such a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.harness.calls.clone import SINGLE, Call, CloneError, Convert, narrowed, nearby, nudged, widened
from assay.harness.calls.tree import walk_call
from assay.harness.judge import kinks
from assay.harness.judge.float64 import NARROW, WIDER, Coarse, Drawn, Recast
from assay.harness.observe.observation import BRIEFLY, Observation, Place, Script, observe
from assay.harness.observe.scripts import Scripts

Run = tuple[Observation, ...]
Part = Mapping[int, Observation]
"""Some acts of a run, by their place in the whole."""
Places = Mapping[Place, Tensor | None]
"""Tensors of a run, and which elements of each; None: all of them."""
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class EagerRuns:
    """The runs of a case in a mode, as they are asked for. What is asked for twice is run once."""

    call: Call
    scripts: Scripts
    mode: str
    seed: int
    draws: bool
    """Whether the program draws random numbers, which are then moved as those that it is given are."""
    longer: EagerRuns | None = None
    """Runs of these acts and more. Those that were made serve here too."""
    places: Places | None = None
    """The tensors of numbers that the runs keep; None: all, but for state that nothing has written."""
    _shorter: dict[frozenset[int], EagerRuns] = field(default_factory=dict, init=False)
    _narrower: list[EagerRuns] = field(default_factory=list, init=False)
    """Runs of the same acts that keep less."""
    _runs: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False)
    _bounds: list[Sequence[Sequence[Tensor]]] = field(default_factory=list, init=False)

    @property
    def count(self) -> int:
        """How many acts each of them goes through."""
        return len(self.scripts.acts) - len(self.scripts.skipped)

    def of(self, indices: frozenset[int]) -> EagerRuns:
        """Runs of some acts alone; those that were made of more acts serve for these, if they do."""
        if len(indices) == self.count:
            return self
        longer = min((known for known in self._shorter if known >= indices), key=len, default=None)
        if indices not in self._shorter:
            before = self if longer is None else self._shorter[longer]
            self._shorter[indices] = dataclasses.replace(self, scripts=self.scripts.of(indices), longer=before)
        return self._shorter[indices]

    def keeping(self, places: Places) -> EagerRuns:
        """Runs of the same acts that keep those tensors alone of all that hold numbers."""
        known = next((each for each in self._narrower if each._keeps(places)), None)
        if known is None:
            known = dataclasses.replace(self, places=dict(places), longer=self)
            self._narrower.append(known)
        return known

    def _keeps(self, places: Places | None) -> bool:
        """Whether all that is asked for is there, of the very same elements."""
        if self.places is None:
            return places is None
        return places is not None and all(
            place in self.places and self.places[place] is which for place, which in places.items()
        )

    def _holders(self) -> Iterator[EagerRuns]:
        """These, and all others whose runs keep as much and go through as many acts."""
        known: EagerRuns | None = self
        while known is not None:
            yield from (each for each in (known, *known._narrower) if each._keeps(self.places))
            known = known.longer

    def _once(self, key: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """What was made under that key, here or among the longer runs; else what is made now."""
        found = next((each._runs for each in self._holders() if key in each._runs), self._runs)
        if key not in found:
            found[key] = make()
        made: Made = found[key]
        return made

    def plain(self) -> Part:
        """The run as it is."""
        return self._once(("plain",), lambda: self._run(self.scripts.script()))

    def wide(self) -> Run | str:
        """The run in float64, or why there is none."""
        try:
            return tuple(self._widened(torch.float64).values())
        except CloneError as error:
            return str(error)

    def nudged(
        self, dtype: torch.dtype | None, moves_freely: bool, index: int, rounded: torch.dtype | None = None
    ) -> Part | None:
        """A run with every number of the call moved by one rounding: of its own, or of a wider dtype in which all is
        computed, or of one to which all is `rounded`. If not `moves_freely`, whole numbers stay and equal ones stay
        equal. None for a call that cannot be copied so."""
        key = ("nudged", dtype, moves_freely, index, rounded)
        return self._once(key, lambda: self._nudge(dtype, moves_freely, index, rounded))

    def _nudge(
        self, dtype: torch.dtype | None, moves_freely: bool, index: int, rounded: torch.dtype | None
    ) -> Part | None:
        seed, least = self.seed + index + 1, 0.0 if rounded is None else torch.finfo(rounded).eps
        move = nudged(seed, moves_whole=moves_freely, least=least, moves_alike=not moves_freely)
        try:
            if dtype is not None:
                return self._widened(dtype, move)
            with Drawn(nudged(seed, moves_whole=False)) if self.draws else contextlib.nullcontext():
                return self._run(self.scripts.script(move), move)
        except CloneError:  # storages of mixed dtypes: no perturbed runs, and the bound stays as it is
            return None

    def narrowed(self, index: int, is_held: bool) -> tuple[Part, Part] | None:
        """Run `index` in float32, and in float64 on the very same numbers: what differs is what float32 rounds. Where
        float32 does not hold the numbers, all is rounded to its precision in float64. None where neither can be."""
        return self._once(("narrowed", index, is_held), lambda: self._narrowed(index, is_held))

    def _narrowed(self, index: int, is_held: bool) -> tuple[Part, Part] | None:
        try:
            return self._narrow(index) if is_held else self._coarse(index)
        except CloneError:  # what float32 cannot hold: no such runs, and the bound stays as it is
            return None

    def _narrow(self, index: int) -> tuple[Part, Part]:
        mode = Recast(torch.float64, torch.float32, SINGLE)
        seed = self.seed + index + 1
        single, exact = narrowed(seed), narrowed(seed)  # each draws the same moves in the same order

        def widen(flat: Tensor) -> Tensor:
            return exact(flat).to(flat.dtype)

        narrow = self._recast(self.scripts.script(single), mode, torch.float32)
        return narrow, self._run(self.scripts.script(widen))

    def _coarse(self, index: int) -> tuple[Part, Part]:
        scripts = [self.scripts.script(nearby(self.seed + index + 1)) for _ in range(2)]
        with Coarse():
            coarse = self._run(scripts[0])
        return coarse, self._run(scripts[1])

    def across_kinks(self, index: int) -> Part | None:
        """A float64 run with operands at kinks moved to one side or the other; None where eager's kinks are not those
        of float64, or are too many, and where no operand is near a kink."""
        return self._once(("across", index), lambda: self._across(index))

    def _across(self, index: int) -> Part | None:
        if not self._bounds:
            self._bounds.append(self._bounds_at_kinks())
        if not self._bounds[0]:
            return None
        return self._widened(torch.float64, inside=kinks.Moved(self._bounds[0], index))

    def _bounds_at_kinks(self) -> Sequence[Sequence[Tensor]]:
        narrow = kinks.Recorded()
        try:
            with narrow:
                self._run(self.scripts.script())
        except kinks.TooMany:
            return ()
        wide = kinks.Bounded(narrow.operands)
        self._widened(torch.float64, inside=wide)
        return wide.bounds()

    def _widened(
        self,
        wide: torch.dtype,
        move: Convert | None = None,
        inside: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Part:
        """A run in a wider dtype, within a mode. Raises: CloneError for a call that cannot be copied into it."""

        def convert(flat: Tensor) -> Tensor:
            made = widened(flat, wide)
            return move(made) if move is not None else made

        mode = Recast(_own_dtype(self.call, NARROW), wide, WIDER[wide])
        return self._recast(self.scripts.script(convert), mode, wide, move, inside)

    def _recast(
        self, script: Script, mode: Recast, dtype: torch.dtype, move: Convert | None = None,
        inside: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Part:  # fmt: skip
        """A run under the mode, with the dtype as the default one."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with mode, inside or contextlib.nullcontext():
                return self._run(script, move)
        finally:
            torch.set_default_dtype(default)

    def _run(self, script: Script, moved: Convert | None = None) -> Part:
        script, scenario = dataclasses.replace(script, moved=moved), self.scripts.case.scenario
        watch = dataclasses.replace(BRIEFLY, places=self.places, keeps_unwritten=False)
        run = observe(script, self.mode, self.seed, scenario=scenario, watch=watch)
        return dict(zip(script.made, run, strict=True))


def _own_dtype(call: Call, dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """Which of the dtypes most of the call's tensors have; the default one where none has."""
    tensors = walk_call(call.function, call.args, call.kwargs).tensors.values()
    found = Counter(tensor.dtype for tensor in tensors if tensor.dtype in dtypes)
    return found.most_common(1)[0][0] if found else torch.get_default_dtype()
