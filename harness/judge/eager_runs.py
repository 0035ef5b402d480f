"""Runs of eager that say how far a right program may be from it: in float64, on neighbouring numbers, across kinks.

Each is a run of a case's acts, or of the first of them. Nothing but numbers is looked at in such a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.harness.calls.clone import SINGLE, Call, CloneError, Convert, narrowed, nearby, nudged, widened
from assay.harness.calls.tree import walk_call
from assay.harness.judge import kinks
from assay.harness.judge.float64 import NARROW, WIDER, Coarse, Drawn, Recast
from assay.harness.observe.observation import BRIEFLY, Observation, Script, observe
from assay.harness.observe.scripts import Scripts

Run = tuple[Observation, ...]
Nudge = tuple[torch.dtype | None, bool, int]
"""The wider dtype in which all is computed, if any; whether whole numbers move; which of such runs."""


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
    """Runs of more acts. Those that were made serve for fewer acts too."""
    _shorter: dict[int, EagerRuns] = field(default_factory=dict, init=False)
    _nudged: dict[Nudge, Run | None] = field(default_factory=dict, init=False)
    _narrowed: dict[tuple[int, bool], tuple[Run, Run] | None] = field(default_factory=dict, init=False)
    _bounds: list[Sequence[Sequence[Tensor]]] = field(default_factory=list, init=False)
    _across: dict[int, Run] = field(default_factory=dict, init=False)

    @property
    def count(self) -> int:
        """How many acts each of them goes through."""
        return len(self.scripts.acts)

    def first(self, count: int) -> EagerRuns:
        """Runs of the first acts alone, at least so many of them: those that were asked for before, if they do."""
        if count >= self.count:
            return self
        count = min((known for known in self._shorter if known >= count), default=count)
        return self._shorter.setdefault(
            count, dataclasses.replace(self, scripts=self.scripts.first(count), longer=self)
        )

    def wide(self) -> Run | str:
        """The run in float64, or why there is none."""
        try:
            return self._widened(torch.float64)
        except CloneError as error:
            return str(error)

    def nudged(self, dtype: torch.dtype | None, moves_whole: bool, index: int) -> Run | None:
        """A run with every number of the call moved by one rounding: of its own, or of a wider dtype in which all is
        computed. Whole numbers may stay. None for a call that cannot be copied so."""
        key = (dtype, moves_whole, index)
        if self.longer is not None and key in self.longer._nudged:
            return self.longer._nudged[key]
        if key not in self._nudged:
            self._nudged[key] = self._nudge(*key)
        return self._nudged[key]

    def _nudge(self, dtype: torch.dtype | None, moves_whole: bool, index: int) -> Run | None:
        seed = self.seed + index + 1
        move = nudged(seed, moves_whole)
        try:
            if dtype is not None:
                return self._widened(dtype, move)
            with Drawn(nudged(seed, moves_whole=False)) if self.draws else contextlib.nullcontext():
                return self._run(self.scripts.script(move), move)
        except CloneError:  # storages of mixed dtypes: no perturbed runs, and the bound stays as it is
            return None

    def narrowed(self, index: int, is_held: bool) -> tuple[Run, Run] | None:
        """Run `index` in float32, and in float64 on the very same numbers: what differs is what float32 rounds. Where
        float32 does not hold the numbers, all is rounded to its precision in float64. None where neither can be."""
        key = (index, is_held)
        if key not in self._narrowed:
            try:
                self._narrowed[key] = self._narrow(index) if is_held else self._coarse(index)
            except CloneError:  # what float32 cannot hold: no such runs, and the bound stays as it is
                self._narrowed[key] = None
        return self._narrowed[key]

    def _narrow(self, index: int) -> tuple[Run, Run]:
        mode = Recast(torch.float64, torch.float32, SINGLE)
        seed = self.seed + index + 1
        single, exact = narrowed(seed), narrowed(seed)  # each draws the same moves in the same order

        def widen(flat: Tensor) -> Tensor:
            return exact(flat).to(flat.dtype)

        narrow = self._recast(self.scripts.script(single), mode, torch.float32)
        return narrow, self._run(self.scripts.script(widen))

    def _coarse(self, index: int) -> tuple[Run, Run]:
        scripts = [self.scripts.script(nearby(self.seed + index + 1)) for _ in range(2)]
        with Coarse():
            coarse = self._run(scripts[0])
        return coarse, self._run(scripts[1])

    def across_kinks(self, index: int) -> Run | None:
        """A float64 run with operands at kinks moved to one side or the other; None where eager's kinks are not those
        of float64, or are too many."""
        if not self._bounds:
            self._bounds.append(self._bounds_at_kinks())
        if not self._bounds[0]:
            return None
        if index not in self._across:
            self._across[index] = self._widened(torch.float64, inside=kinks.Moved(self._bounds[0], index))
        return self._across[index]

    def _bounds_at_kinks(self) -> Sequence[Sequence[Tensor]]:
        narrow, wide = kinks.Recorded(), kinks.Recorded()
        try:
            with narrow:
                self._run(self.scripts.script())
            self._widened(torch.float64, inside=wide)
        except kinks.TooMany:
            return ()
        return kinks.bounds_of(narrow.operands, wide.operands) or ()

    def _widened(
        self,
        wide: torch.dtype,
        move: Convert | None = None,
        inside: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Run:
        """A run in a wider dtype, within a mode. Raises: CloneError for a call that cannot be copied into it."""

        def convert(flat: Tensor) -> Tensor:
            made = widened(flat, wide)
            return move(made) if move is not None else made

        mode = Recast(_own_dtype(self.call, NARROW), wide, WIDER[wide])
        return self._recast(self.scripts.script(convert), mode, wide, move, inside)

    def _recast(
        self, script: Script, mode: Recast, dtype: torch.dtype, move: Convert | None = None,
        inside: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Run:  # fmt: skip
        """A run under the mode, with the dtype as the default one."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with mode, inside or contextlib.nullcontext():
                return self._run(script, move)
        finally:
            torch.set_default_dtype(default)

    def _run(self, script: Script, moved: Convert | None = None) -> Run:
        script, scenario = dataclasses.replace(script, moved=moved), self.scripts.case.scenario
        return observe(script, self.mode, self.seed, scenario=scenario, watch=BRIEFLY)


def _own_dtype(call: Call, dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """Which of the dtypes most of the call's tensors have; the default one where none has."""
    tensors = walk_call(call.function, call.args, call.kwargs).tensors.values()
    found = Counter(tensor.dtype for tensor in tensors if tensor.dtype in dtypes)
    return found.most_common(1)[0][0] if found else torch.get_default_dtype()
