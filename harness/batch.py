"""Runs a batch of samples: many in one compile, and one by one where something is not as eager's.

    together, as one graph -> together, through torch.compile -> halves -> one sample, whose row is its verdict

What a compile of several shows is taken apart until each verdict is that of one sample. A difference names its sample
by its path, and that sample runs again alone; one that is `same` alone, and was not among others, is `diverged` with
its differences among them. Eager that raises, a crash and a refusal end a program, so its samples run in halves.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler import journal
from harness import backends, outcome
from harness.backends import Backend
from harness.case import Case, Made
from harness.direct import without_dynamo
from harness.outcome import Result
from harness.run import BOTH_RAISE, run_case
from harness.sample import Batch, Sample

TOGETHER = 24
"""How many samples share a compile."""
PLACE = re.compile(r"\b(?:input\[0\]|output|closure\.functions)\['([^']+)'\]")
IN_EAGER = "(the whole graph in eager)"
STRICT = "fallback=error"
"""What makes our own compiler refuse a program that it would give back to eager."""


@dataclass(slots=True)
class Tally:
    """What the samples of a batch came to. `failures` are the rows that are not `same`; `given_back`: samples that
    the compiler gave back to eager; `nodes` and the rest are of the compiles whose verdicts count, where what ran in
    eager is one node."""

    samples: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)
    given_back: int = 0
    compiles: int = 0
    nodes: int = 0
    nodes_generated: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)

    def judged(self, result: Result) -> None:
        self.samples += 1
        self.verdicts[result.verdict] += 1
        if result.verdict != "same":
            self.failures.append(result)

    def counted(self, result: Result) -> None:
        self.nodes += result.nodes or 0
        self.nodes_generated += result.nodes_generated or 0
        self.fallbacks.update(result.fallbacks)

    def gave_back(self) -> None:
        self.given_back += 1
        self.nodes += 1
        self.fallbacks[IN_EAGER] += 1

    def data(self) -> dict[str, Any]:
        """The tally as JSON has it."""
        data = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        counts = {name: dict(data[name]) for name in ("verdicts", "fallbacks")}
        return {**data, **counts, "failures": [dataclasses.asdict(result) for result in self.failures]}

    @staticmethod
    def read(data: Mapping[str, Any]) -> Tally:
        failures = [outcome.read(row) for row in data["failures"]]
        counts = {name: Counter(data[name]) for name in ("verdicts", "fallbacks")}
        return Tally(**{**data, **counts, "failures": failures})


@dataclass(frozen=True, slots=True)
class How:
    """How to run a batch. `together`: how many samples share a compile; `excluded` are the names of samples that ended
    an earlier process, `only` says which of the others to run; `said` hears the names before each compile of them."""

    backend: str
    seed: int
    suite: str
    together: int = TOGETHER
    excluded: tuple[str, ...] = ()
    said: Callable[[Sequence[str]], None] = lambda names: None
    only: Callable[[Sequence[Sample]], Sequence[Sample]] = lambda samples: samples


def run_batch(batch: Batch, how: How) -> Tally:
    """Every sample of the batch, judged."""
    trial = _Trial(batch, how)
    how.said(())
    samples = how.only([sample for sample in batch.make(how.seed) if sample.name not in how.excluded])
    size = how.together if batch.is_together else 1
    for start in range(0, len(samples), size):
        trial.judge(tuple(samples[start : start + size]))
    return trial.tally


@dataclass(frozen=True, slots=True)
class _Trial:
    """One batch on one backend."""

    batch: Batch
    how: How
    tally: Tally = field(default_factory=Tally)

    def judge(self, samples: tuple[Sample, ...], is_whole: bool = True) -> None:
        """Judges the samples, together as far as they let themselves be."""
        results = self._results(samples, is_whole)
        result = next(results)
        while not is_conclusive(result, len(samples)) and (another := next(results, None)) is not None:
            result = another
        if len(samples) == 1 or is_conclusive(result, len(samples)):
            return self._conclude(samples, result)
        middle = len(samples) // 2
        self.judge(samples[:middle], False)
        self.judge(samples[middle:], False)

    def _results(self, samples: tuple[Sample, ...], is_whole: bool) -> Iterator[Result]:
        """The samples' result by each front in turn. The last word on one sample has the compiler as users call it."""
        strict = strictly(self.how.backend)
        is_direct = self.batch.front == "graph" and strict != self.how.backend
        if is_direct:
            yield self._run(samples, without_dynamo(strict))
        if len(samples) == 1:
            before = journal.totals()["eager_graphs"]
            result = self._run(samples, backends.resolve(self.how.backend))
            if journal.totals()["eager_graphs"] != before:
                self.tally.gave_back()
            yield result
        elif is_whole or not is_direct:
            yield self._run(samples, backends.resolve(strict))

    def _run(self, samples: tuple[Sample, ...], backend: Backend) -> Result:
        self.tally.compiles += 1
        self.how.said([sample.name for sample in samples])
        case = Case(self._name(samples), lambda: together(samples), (self.batch.mode,), (), ("tiny",))
        result = run_case(
            case, self.batch.mode, backend, seed=self.how.seed, timed=False, steps=1, quick=True, is_poked=False
        )
        return dataclasses.replace(result, backend=self.how.backend)

    def _name(self, samples: tuple[Sample, ...]) -> str:
        return f"{self.how.suite}.{self.batch.name}[{', '.join(sample.name for sample in samples)}]"

    def _conclude(self, samples: tuple[Sample, ...], result: Result) -> None:
        """Counts the verdict of each sample of a run that concludes."""
        self.tally.counted(result)
        named = named_samples(result)
        for sample in samples:
            if len(samples) == 1:
                self.tally.judged(result)
            elif sample.name in named:
                self._judge_alone(sample, result)
            else:
                self.tally.judged(Result(self._name((sample,)), self.batch.mode, self.how.backend, "same"))

    def _judge_alone(self, sample: Sample, among: Result) -> None:
        """Judges a sample that differed among others. One that does not differ alone differs all the same."""
        alone = _Trial(self.batch, self.how)
        alone.judge((sample,), False)
        self.tally.compiles += alone.tally.compiles
        if alone.tally.failures:
            return self.tally.judged(alone.tally.failures[0])
        mine = tuple(difference for difference in among.differences if sample.name in places(difference.path))
        told = f"only among others: {among.case}"
        self.tally.judged(dataclasses.replace(among, case=self._name((sample,)), differences=mine, detail=told))


def strictly(backend: str) -> str:
    """The backend that refuses what it would give back to eager, where it knows how to."""
    return f"{backend},{STRICT}" if backend.split(",")[0] == "assay" else backend


def is_conclusive(result: Result, count: int) -> bool:
    """Whether a run of `count` samples tells the verdict of each. An error ends it, and says nothing of the others."""
    if count > 1 and result.detail.startswith(BOTH_RAISE):
        return False
    if result.verdict in ("crash", "unsupported") or any(one.field == "error" for one in result.differences):
        return False
    return count == 1 or all(places(difference.path) for difference in result.differences)


def places(path: str) -> tuple[str, ...]:
    """The names of the samples that a path is about."""
    return tuple(PLACE.findall(path))


def named_samples(result: Result) -> frozenset[str]:
    return frozenset(name for difference in result.differences for name in places(difference.path))


def together(samples: Sequence[Sample]) -> Made:
    """A function of all the samples' calls that returns their results, both by the samples' names.

    A sample has the same paths alone as among others, and so the same cotangents.
    """
    functions = {sample.name: sample.function for sample in samples}

    def call_all(calls: dict[str, Any]) -> dict[str, Any]:
        return {name: functions[name](*args, **kwargs) for name, (args, kwargs) in calls.items()}

    return call_all, ({sample.name: (sample.args, sample.kwargs) for sample in samples},), {}
