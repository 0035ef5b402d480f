"""The first rung on which a case differs from eager: found by halving, then held by repeats.

Halving takes a handful of runs. It finds a rung that fails beside one below it that does not, and both are run again.
The confidence says how sure it is that the rung below is right. It is one minus the probability of so many runs without
a failure, if that rung failed as often as the one above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.harness.locate.rungs import Rung
from assay.harness.locate.runner import Runner, Tried, step_of
from assay.harness.outcome import Result
from assay.harness.search.generated import Kind, kind_of

REPEATS = 3
FEW_ACTS = 4
"""So many acts take much less time than all."""


class NothingFails(Exception):
    """The whole backend is as eager."""


@dataclass(frozen=True, slots=True)
class Step:
    """A rung that was run: how often, and how often it failed as the whole backend does."""

    rung: Rung
    runs: int
    failures: int
    row: Result

    @property
    def is_unknown(self) -> bool:
        """Whether its time was up, and that is not how the whole backend fails."""
        return self.row.verdict == "timeout" and not self.failures


@dataclass(frozen=True, slots=True)
class Found:
    """Where a case begins to differ, and how it does there. `below` is the last rung that does not; None if the first
    one differs."""

    case: str
    mode: str
    backend: str
    kind: Kind
    first: Step
    below: Step | None
    steps: tuple[Step, ...]
    acts: int | None = None
    """How many acts each run had, if not all of them."""
    device: str = "cpu"

    @property
    def rate(self) -> float:
        return self.first.failures / self.first.runs

    @property
    def confidence(self) -> float:
        """How sure it is that the rung below does not fail, at a rate as low as the runs leave room for."""
        if self.below is None:
            return 1.0
        likely = (self.first.failures + 1) / (self.first.runs + 2)
        return 1 - (1 - likely) ** self.below.runs if not self.below.failures else 0.0


@dataclass(slots=True)
class Climb:
    """One search. `say` is told of every rung that is run."""

    runner: Runner
    mode: str
    rungs: Sequence[Rung]
    repeats: int = REPEATS
    say: Callable[[Step], None] = lambda step: None
    steps: dict[str, Step] = field(default_factory=dict)
    kind: Kind | None = None

    def find(self, runs_all: bool = False) -> Found:
        """The first rung that differs. Raises: NothingFails if the last one is as eager."""
        top = self._top() if runs_all else self._of_few_acts(self._top())
        if runs_all:
            for index in range(len(self.rungs)):
                self._run(index)
        index = self._halved(self.rungs.index(top.rung))
        first, below = self._again(index), self._below(index)
        case, backend, steps = self.runner.case.name, self.rungs[-1].backend, tuple(self.steps.values())
        return Found(case, self.mode, backend, kind_of(first.row), first, below, steps, self.runner.most_acts,
                     self.runner.device)  # fmt: skip

    def _below(self, index: int) -> Step | None:
        """The nearest rung under one of which it is known how it fares."""
        for lower in range(index - 1, -1, -1):
            step = self._again(lower)
            if not step.is_unknown:
                return step
        return None

    def _top(self) -> Step:
        """A rung that fails as the whole backend does: the last but one, where the last is only a warm start of it.

        One act is tried first, as it may be enough. What fails once in a while is found by repeats. Raises:
        NothingFails.
        """
        last = len(self.rungs) - 1
        places = (last - 1, last) if self.rungs[last].is_warm else (last,)
        ways = ((True, self._run), (False, self._run), (False, self._again))
        for acts, is_quick, run in ((1, *ways[0]), *((None, *way) for way in ways)):
            self._begin(acts, is_quick)
            for index in places[:acts]:
                if (step := run(index)).failures:
                    return step
        raise NothingFails(f"{self.runner.case.name} {self.mode} {self.rungs[-1].backend}: as eager, on every try")

    def _begin(self, acts: int | None, is_quick: bool) -> None:
        """Further runs have so many acts, and are quick or not. What was run in another way is forgotten."""
        if (acts, is_quick) != (self.runner.most_acts, self.runner.is_quick):
            self.runner.most_acts, self.runner.is_quick = acts, is_quick
            self.steps.clear()

    def _of_few_acts(self, top: Step) -> Step:
        """The same rung with the acts up to the one that failed, if these are enough: more runs take less time."""
        known, acts = dict(self.steps), step_of(top.row)
        if self.runner.most_acts is not None or acts is None or acts > FEW_ACTS:
            return top
        self._begin(acts, self.runner.is_quick)
        again = self._run(self.rungs.index(top.rung))
        if again.failures:
            return again
        self._begin(None, self.runner.is_quick)
        self.steps = known
        return top

    def _halved(self, failing: int) -> int:
        """The lowest failing rung, if all above it fail, too; else one that fails above one that does not."""
        low, high = -1, failing
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._run(middle).failures else (middle, high)
        return high

    def _run(self, index: int) -> Step:
        rung = self.rungs[index]
        return self.steps.get(rung.name) or self._note(rung, 0, 0, self._tried(rung, 1))

    def _again(self, index: int) -> Step:
        rung = self.rungs[index]
        known = self._run(index)
        if known.runs >= self.repeats or known.is_unknown:
            return known
        return self._note(rung, known.runs, known.failures, self._tried(rung, self.repeats - known.runs), known.row)

    def _tried(self, rung: Rung, times: int) -> Tried:
        mode = rung.mode if rung.mode in self.runner.case.modes else self.mode
        return self.runner.run(
            rung.backend, mode, times, is_warm=rung.is_warm, environment=rung.environment, limit_s=rung.limit_s
        )

    def _note(self, rung: Rung, runs: int, failures: int, tried: Tried, known: Result | None = None) -> Step:
        failed = tried.failures(self.kind)
        if failed and self.kind is None:
            self.kind = kind_of(failed[0])
        row = failed[0] if failed else known or tried.rows[0]
        step = self.steps[rung.name] = Step(rung, runs + len(tried.rows), failures + len(failed), row)
        self.say(step)
        return step
