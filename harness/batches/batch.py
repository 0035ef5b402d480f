"""Runs a batch of samples: many in one compile, and one by one where something is not as eager's.

    together, as one graph -> without those that eager rejects -> with none of these through torch.compile, where it is
    refused -> halves -> one sample, whose row is its verdict

The verdict of several samples is taken apart until each verdict is that of one sample:

- A difference names its sample by its path, and that sample runs again alone. If it is `same` alone, and was not among
  others, it is `diverged` with its differences among them.
- Eager that raises ends a program. So each sample that raises runs alone, and the others again together.
- A crash and a refusal end a program too, and it runs in halves.
- One sample that is refused as a graph runs through torch.compile, as users have it, and may then go back to eager.
  Any other verdict of a graph stands.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.compiler import journal
from assay.harness import outcome
from assay.harness.backends import registry as backends
from assay.harness.backends.direct import without_dynamo
from assay.harness.backends.registry import Backend
from assay.harness.batches.sample import Batch, Sample
from assay.harness.calls.tree import walk_call
from assay.harness.case import Case, Made
from assay.harness.observe.traits import traits_of
from assay.harness.outcome import Result
from assay.harness.protocol.acts import steps
from assay.harness.run import BOTH_RAISE, RunRequest, run_case
from assay.harness.search.generated import kind_of

TOGETHER = 24
"""How many samples share a compile."""
CALLS = 2
"""How often each is called, with numbers of its own each time."""
PLACE = re.compile(r"\b(?:input\[0\]|output|closure\.functions)\['([^']+)'\]")
ENDS = ("error", "structure")
"""Fields whose difference tells of the whole program: it ended, or was given another form than its own."""
IN_HARNESS = "in the harness:"
NOTHING = "eager-none"
ALONE = "eager"
AS_MUCH = "Dynamo alone, with eager behind it, fails in the same way"
IN_EAGER = "(the whole graph in eager)"
ENDED = ("crash", "unsupported", "fell-back")
"""Verdicts that are about a program as a whole, and tell nothing of each of its samples."""
STRICT = "fallback=error"
"""What makes our own compiler refuse a program that it would give back to eager."""
STRICTLY = ("assay", "assay-recorded", "assay-triton", "assay-sm90")
"""The backends that take it."""


COUNTS = ("verdicts", "fallbacks", "dtypes", "layouts")


@dataclass(slots=True)
class Tally:
    """What the samples of a batch came to. `failures` are the rows that are not `same`; `given_back`: samples that
    the compiler gave back to eager; `dtypes` and `layouts` count those of samples that are `same`. `nodes` and the rest
    are of the compiles whose verdicts count, those of whole graphs in eager too."""

    samples: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)
    given_back: int = 0
    compiles: int = 0
    nodes: int = 0
    nodes_generated: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)

    def judged(self, result: Result) -> None:
        self.samples += 1
        self.verdicts[result.verdict] += 1
        if result.verdict != "same":
            self.failures.append(result)
            return
        self.dtypes.update(result.dtypes)
        self.layouts.update(result.layouts)

    def counted(self, result: Result) -> None:
        self.nodes += result.nodes or 0
        self.nodes_generated += result.nodes_generated or 0
        self.fallbacks.update(result.fallbacks)

    def gave_back(self) -> None:
        self.given_back += 1
        self.fallbacks[IN_EAGER] += 1

    def data(self) -> dict[str, Any]:
        """The tally as JSON has it."""
        data = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        counts = {name: dict(data[name]) for name in COUNTS}
        return {**data, **counts, "failures": [dataclasses.asdict(result) for result in self.failures]}

    @staticmethod
    def read(data: Mapping[str, Any]) -> Tally:
        failures = [outcome.read(row) for row in data["failures"]]
        counts = {name: Counter(data.get(name, {})) for name in COUNTS}
        return Tally(**{**data, **counts, "failures": failures})


@dataclass(frozen=True, slots=True)
class How:
    """How to run a batch. `together`: how many samples share a compile; `excluded` are the names of samples that ended
    an earlier process, `only` says which of the others to run; `said` hears the names before each compile of them.
    Batches that judge their programs themselves do so on the CPU."""

    backend: str
    seed: int
    suite: str
    together: int = TOGETHER
    excluded: tuple[str, ...] = ()
    said: Callable[[Sequence[str]], None] = lambda names: None
    only: Callable[[Sequence[Sample]], Sequence[Sample]] = lambda samples: samples
    device: str = "cpu"


def run_batch(batch: Batch, how: How) -> Tally:
    """Every sample of the batch, judged."""
    trial = _Trial(batch, how)
    how.said(())
    samples = how.only([sample for sample in batch.make(how.seed) if sample.name not in how.excluded])
    size = how.together if batch.is_together else 1
    with _in_one_thread() if batch.is_serial else nullcontext():
        for start in range(0, len(samples), size):
            trial.judge(tuple(samples[start : start + size]))
    return trial.tally


@contextmanager
def _in_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One batch on one backend."""

    batch: Batch
    how: How
    tally: Tally = field(default_factory=Tally)

    def judge(self, samples: tuple[Sample, ...]) -> None:
        """Judges the samples, together as far as they let themselves be. Where the whole is refused as a graph, and not
        for a sample that eager rejects, Dynamo may break it."""
        if len(samples) == 1:
            return self._judge_one(samples)
        result = self._run_together(samples, self._first)
        if is_conclusive(result):
            return
        if rejected := self._rejected(samples):
            self._judge_without(rejected, samples)
        elif not (result.verdict == "unsupported" and self._is_direct and self._is_judged_through_dynamo(samples)):
            self._judge_halves(samples)

    def _judge_without(self, rejected: Sequence[Sample], samples: tuple[Sample, ...]) -> None:
        """Judges the samples that eager rejects one by one, and the others together."""
        names = {sample.name for sample in rejected}
        for sample in rejected:
            self._judge_through_dynamo((sample,))
        if accepted := tuple(sample for sample in samples if sample.name not in names):
            self._judge_accepted(accepted)

    def _judge_accepted(self, samples: tuple[Sample, ...]) -> None:
        """Judges samples that eager runs."""
        if len(samples) == 1:
            self._judge_one(samples)
        elif not is_conclusive(self._run_together(samples, self._first)):
            self._judge_halves(samples)

    def _judge_halves(self, samples: tuple[Sample, ...]) -> None:
        middle = len(samples) // 2
        self._judge_accepted(samples[:middle])
        self._judge_accepted(samples[middle:])

    def _is_judged_through_dynamo(self, samples: tuple[Sample, ...]) -> bool:
        return is_conclusive(self._run_together(samples, backends.resolve(strictly(self.how.backend))))

    def _run_together(self, samples: tuple[Sample, ...], backend: Backend) -> Result:
        """Runs the samples as one program, and counts the verdict of each where that tells them."""
        result = self._run(samples, backend)
        if is_conclusive(result):
            self._conclude(samples, result)
        return result

    @property
    def _first(self) -> Backend:
        """The backend that samples are given to first."""
        strict = strictly(self.how.backend)
        return without_dynamo(strict) if self._is_direct else backends.resolve(strict)

    @property
    def _is_direct(self) -> bool:
        """Whether graphs go to the backend as they stand: to one that then refuses what it cannot take."""
        return self.batch.front == "graph" and strictly(self.how.backend) != self.how.backend

    def _judge_one(self, samples: tuple[Sample, ...]) -> None:
        if self._is_direct:
            result = self._run(samples, without_dynamo(strictly(self.how.backend)))
            if result.verdict != "unsupported":
                self.tally.counted(result)
                return self.tally.judged(result)
        self._judge_through_dynamo(samples)

    def _judge_through_dynamo(self, samples: tuple[Sample, ...]) -> None:
        """Judges one sample with the compiler as users have it."""
        before = journal.totals()["eager_graphs"]
        result = self._run(samples, backends.resolve(self.how.backend))
        if journal.totals()["eager_graphs"] != before:
            self.tally.gave_back()
        self.tally.counted(result)
        self.tally.judged(self._explained(samples, result))

    def _rejected(self, samples: tuple[Sample, ...]) -> list[Sample]:
        """The samples for which eager raises: none where it runs them all as one program."""
        if not self._raises(samples):
            return []
        return [sample for sample in samples if self._raises((sample,))]

    def _raises(self, samples: tuple[Sample, ...]) -> bool:
        """Whether eager raises."""
        return self._run(samples, backends.resolve(NOTHING)).detail.startswith(BOTH_RAISE)

    def _run(self, samples: tuple[Sample, ...], backend: Backend) -> Result:
        """The row of the samples as one program. What the harness itself trips over is a crash of that row."""
        self.tally.compiles += backend.name != NOTHING
        self.how.said([sample.name for sample in samples])
        name, mode = self._name(samples), self.batch.mode
        case = Case(name, lambda: together(samples), (mode,), self.batch.tags, ("tiny",))
        judge = self.batch.judge or functools.partial(_beside_eager, device=self.how.device)
        try:
            result = judge(case, backend, self.how.seed)
        except Exception:
            return Result(name, mode, self.how.backend, "crash", detail=f"{IN_HARNESS}\n{traceback.format_exc()}")
        return dataclasses.replace(result, backend=self.how.backend)

    def _name(self, samples: tuple[Sample, ...]) -> str:
        return f"{self.how.suite}.{self.batch.name}[{', '.join(sample.name for sample in samples)}]"

    def _conclude(self, samples: tuple[Sample, ...], result: Result) -> None:
        """Counts the verdict of each sample of a run that concludes."""
        self.tally.counted(result)
        named = named_samples(result)
        for sample in samples:
            if sample.name in named:
                self._judge_alone(sample, result)
            else:
                self.tally.judged(self._same(sample))

    def _same(self, sample: Sample) -> Result:
        """The row of a sample that was as eager among others."""
        traits = traits_of(walk_call(sample.function, sample.args, sample.kwargs).tensors.values())
        name, mode, backend = self._name((sample,)), self.batch.mode, self.how.backend
        return Result(name, mode, backend, "same", dtypes=traits.dtypes, layouts=traits.layouts)

    def _explained(self, samples: tuple[Sample, ...], result: Result) -> Result:
        """The row of a sample that is not as eager's, which says where Dynamo with nothing behind it fails as much."""
        if result.verdict == "same" or self.how.backend.split(",")[0] == ALONE:
            return result
        flags = [flag for flag in self.how.backend.split(",")[1:] if "=" not in flag]
        beside = backends.resolve(",".join([ALONE, *flags]))
        beside = dataclasses.replace(beside, has_eagers_bits=backends.promises_bits(self.how.backend))
        alone = self._run(samples, beside)
        if alone.verdict == "same" or not kind_of(alone).includes(kind_of(result)):
            return result
        return dataclasses.replace(result, detail=f"{result.detail}\n{AS_MUCH}".strip())

    def _judge_alone(self, sample: Sample, among: Result) -> None:
        """Judges a sample that differed among others. One that does not differ alone differs all the same."""
        alone = _Trial(self.batch, self.how)
        alone.judge((sample,))
        self.tally.compiles += alone.tally.compiles
        if alone.tally.failures:
            return self.tally.judged(alone.tally.failures[0])
        mine = tuple(difference for difference in among.differences if sample.name in places(difference.path))
        told = f"only among others: {among.case}"
        self.tally.judged(dataclasses.replace(among, case=self._name((sample,)), differences=mine, detail=told))


def _beside_eager(case: Case, backend: Backend, seed: int, device: str) -> Result:
    (mode,) = case.modes
    acts = steps(mode, CALLS)
    return run_case(
        case,
        mode,
        backend,
        RunRequest(seed=seed, device=device, timed=False, protocol=acts, quick=True, is_poked=False),
    )


def strictly(backend: str) -> str:
    """The backend that refuses what it would give back to eager, where it knows how to."""
    return f"{backend},{STRICT}" if backend.split(",")[0] in STRICTLY else backend


def is_conclusive(result: Result) -> bool:
    """Whether a run of several samples tells the verdict of each. An error ends it, and says nothing of the others."""
    if result.detail.startswith(BOTH_RAISE) or result.verdict in ENDED:
        return False
    return all(one.field not in ENDS and places(one.path) for one in result.differences)


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
