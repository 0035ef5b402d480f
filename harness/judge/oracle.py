"""What eager says about a case, as far as it is asked: two runs, and on demand a float64 run and perturbed runs.

The float64 run and further runs cost as much as all else together, and many tensors need none. So a comparison first
makes none, and notes what would need them. Only that is judged by such runs, which keep no more than it. Further runs
go through no more acts than they need for it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.harness.calls.clone import SINGLE
from assay.harness.calls.errors import name_of
from assay.harness.calls.memory import bits, give_back
from assay.harness.judge import kinks
from assay.harness.judge.eager_runs import EagerRuns, Part, Places, Run
from assay.harness.judge.elements import Elements
from assay.harness.judge.tolerance import RUNS, Evidence, NotMade, largest
from assay.harness.observe.observation import Observation, Place, Seen, Watch, elements_at, is_same_stream
from assay.harness.protocol.acts import AUTOCAST, AUTOCAST_DTYPE, needed_for

FEW, SAMPLES, MORE = 2, 4, 12
"""So many runs on neighbouring numbers: where the first of them show enough, the others would only show more."""
FEW_KINKS = 2
PAIRS = 12
"""More of them, as numbers nearby are all that a rounding of float64 is known by."""
WIDE = "wide"
"""The float64 run, among the runs that are made."""
ALL = frozenset({WIDE, *RUNS})
ANCHORED = frozenset({WIDE})
LEVELS = (frozenset[str](), ANCHORED, ANCHORED | {"few"}, ALL - {"more", "more_kept"}, ALL)
"""Which runs are made, one level after the other, for what the level before did not settle."""
BETWEEN = {
    **dict.fromkeys((torch.float64, torch.complex128), torch.float64),
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.complex32), torch.float32),
}
"""The dtype in which a program may be computed between its roundings to another. It is float64, also where inputs are
narrower and a rounding of theirs is too large a step. Halves are computed in float32."""
LARGE_BYTES = 1 << 28
"""A float64 run of as many bytes lets go of what is judged."""
SINGLE_TO_DOUBLE = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


@dataclass(slots=True)
class Oracle:
    """Eager's own evidence. `runs` makes all but the first two of its runs."""

    eager: Run
    again: Run
    runs: EagerRuns
    wide: Run | str | None = None
    """The float64 run, as far as anybody asks for it, or the reason why there is none; None: it is not made yet."""
    has_kinks: bool = True
    makes: frozenset[str] = ALL
    """Which of the further runs are made (`Evidence`)."""
    _scales: dict[tuple[int, str], float] = field(default_factory=dict, init=False)
    _elements: dict[int, int] = field(default_factory=dict, init=False)
    """By the step, how many elements its state has."""
    _paths: dict[int, bool] = field(default_factory=dict, init=False)
    """By the id of a run, which `runs` keeps, whether it takes eager's path."""

    def about(self, places: Mapping[Place, Elements | None], makes: frozenset[str]) -> Oracle:
        """The same, whose further runs are these, and go through as few acts as they need to be about those places."""
        if makes <= ANCHORED:
            return dataclasses.replace(self, makes=makes)
        return dataclasses.replace(self, runs=self._runs_about(_elements_of(places)), makes=makes)

    def anchored(self, places: Mapping[Place, Elements | None]) -> Oracle:
        """The same with a float64 run of the acts up to the last of those places, which keeps no other numbers."""
        runs = self.runs.of(_until_last(places)).keeping(_elements_of(places))
        wide = runs.wide()
        anchor = wide if isinstance(wide, str) else anchored_by(wide, self.eager)
        if not isinstance(anchor, str) and _bytes(anchor) >= LARGE_BYTES:
            give_back()
        return dataclasses.replace(self, wide=anchor)

    def keep_at(self, places: Mapping[Place, Elements | None]) -> None:
        """Lets go of all other numbers of the float64 run, if it is large."""
        if self.wide is None or isinstance(self.wide, str) or _bytes(self.wide) < LARGE_BYTES:
            return
        watch = Watch(places=_elements_of(places))
        self.wide = tuple(watch.kept(step, seen, set()) for step, seen in enumerate(self.wide))
        give_back()

    def _runs_about(self, places: Places) -> EagerRuns:
        """Runs of the acts in question, where such a run of eager gives what the whole run gave, bit for bit. Else of
        all acts up to the last of them."""
        whole = self.runs.of(_until_last(places)).keeping(places)
        steps = set().union(*(_steps_of(*place) for place in places))
        parts = self.runs.of(needed_for(self.runs.scripts.acts, steps)).keeping(places)
        return parts if parts.count < whole.count and self._has_given(parts.plain(), places) else whole

    def _has_given(self, run: Part, places: Places) -> bool:
        """Whether eager gave the same at these places, bit for bit, and all else that a path is known by."""
        return takes_path_of(run, self.eager) and all(
            _is_equal_at(run[step], self.eager[step], kind, path, which) for (step, kind, path), which in places.items()
        )

    def around(self, eager: Run) -> Oracle:
        """The same evidence for what eager does elsewhere; nothing is excused by kinks there."""
        return dataclasses.replace(self, eager=eager, again=eager, wide=None, has_kinks=False)

    def evidence(self, step: int, kind: str, path: str, some: Elements | None = None) -> Evidence:
        """What the tensor at `path`, or some elements of it, are judged by. `kind` is as `of_kind` has it.

        Raises: NotMade where the float64 run is not made yet.
        """
        seen = of_kind(self.eager[step], kind)
        truth, why_not = self._truth(step, kind, path)
        truth = truth if some is None or truth is None else some.of(truth)
        found = Evidence(
            truth=truth,
            why_not=why_not,
            few=lambda: list(self._sampled(step, kind, path, which=range(FEW))),
            samples=lambda: list(self._sampled(step, kind, path)),
            more=lambda: list(self._sampled(step, kind, path, which=range(SAMPLES, MORE))),
            kept=lambda: list(self._sampled(step, kind, path, moves_freely=False)),
            more_kept=lambda: list(self._sampled(step, kind, path, moves_freely=False, which=range(SAMPLES, MORE))),
            between=lambda: list(self._between(step, kind, path, some)),
            few_kinks=lambda: list(self._across(step, kind, path, FEW_KINKS)),
            kinks=lambda: list(self._across(step, kind, path, kinks.RUNS)),
            fan_in=self._fan_in(step, seen[path]),
            rounded=self._rounded(_steps_of(step, kind, path)[0]),
            some=some,
        )
        return dataclasses.replace(found.without(self._unmade()), is_first=self.makes <= ANCHORED)

    def evidence_for_number(self, step: int, path: str) -> Evidence:
        """What a Python float of the result is judged by. Raises: NotMade where the float64 run is not made yet."""
        self._check_anchored()
        numbers = [run[step].scalars.get(path) for run in self._wide_runs()]
        truth = torch.tensor(numbers[0], dtype=torch.float64) if numbers and type(numbers[0]) is float else None
        why_not = self.wide if isinstance(self.wide, str) else ""
        found = Evidence(truth, why_not, rounded=self._rounded(step))
        found = dataclasses.replace(found, samples=lambda: list(self._sampled_numbers(step, path)))
        return found.without(self._unmade())

    def _unmade(self) -> frozenset[str]:
        """The further runs that are not made."""
        return ALL - ANCHORED - self.makes

    def _rounded(self, step: int) -> torch.dtype | None:
        """The dtype to which numbers of an act are rounded on their way, where autocast does so."""
        return AUTOCAST_DTYPE if self.runs.scripts.acts[step].within == AUTOCAST else None

    def sure_warnings(self, step: int) -> frozenset[str]:
        """Categories that eager gave in both runs."""
        return frozenset(self.eager[step].warnings.keys() & self.again[step].warnings.keys())

    def any_warnings(self, step: int) -> frozenset[str]:
        """Categories that eager gave in some run."""
        return frozenset(self.eager[step].warnings.keys() | self.again[step].warnings.keys())

    def _scale(self, step: int, kind: str) -> float:
        if (step, kind) not in self._scales:
            seen = of_kind(self.eager[step], kind).values()
            each = (largest(one.value, one.device()) for one in seen if one is not None)
            self._scales[step, kind] = max(each, default=0.0)
        return self._scales[step, kind]

    def _check_anchored(self) -> None:
        """Raises: NotMade where the float64 run is not made yet."""
        if WIDE not in self.makes or self.wide is None:
            raise NotMade

    def _wide_runs(self) -> Sequence[Run]:
        """The float64 run, where there is one."""
        return () if self.wide is None or isinstance(self.wide, str) else (self.wide,)

    def _truth(self, step: int, kind: str, path: str) -> tuple[Tensor | None, str]:
        self._check_anchored()
        assert self.wide is not None
        if isinstance(self.wide, str):
            return None, self.wide
        seen = of_kind(self.wide[step], kind).get(path)
        if seen is None and kind == "mutation" and not self._is_written(path, step):
            seen = self.eager[step].state.get(path)  # the numbers that both were given
        return (None, "the float64 run has no such value") if seen is None else (seen.value, "")

    def _is_written(self, path: str, step: int) -> bool:
        """Whether the float64 run has written a tensor of the state, in an act until then."""
        return any(path in seen.written for run in self._wide_runs() for seen in run[: step + 1])

    def _between(self, step: int, kind: str, path: str, some: Elements | None) -> Iterator[Tensor]:
        eager = of_kind(self.eager[step], kind)[path]
        if eager is not None and (wide := BETWEEN.get(eager.value.dtype)) is not None:
            yield from self._sampled(step, kind, path, wide)
            if eager.value.dtype in SINGLE:
                yield from self._scaled(step, kind, path, eager.value if some is None else some.of(eager.value))

    def _scaled(self, step: int, kind: str, path: str, eager: Tensor) -> Iterator[Tensor]:
        """Eager's value with what float32 loses to roundings added to it, in float64's measure."""
        reach = math.sqrt(torch.finfo(torch.float32).eps) * max(self._scale(step, kind), largest(eager))
        errors = list(self._errors(step, kind, path, eager, is_held=True))
        if not all(bool(torch.isfinite(error).all()) for error in errors):
            errors = list(self._errors(step, kind, path, eager, is_held=False))
        for error in errors:
            if largest(error) <= reach and bool(torch.isfinite(error).all()):
                yield eager + error * SINGLE_TO_DOUBLE

    def _errors(self, step: int, kind: str, path: str, eager: Tensor, is_held: bool) -> Iterator[Tensor]:
        """What each pair of runs differs by; not finite where a number in float32 is none."""
        for single, exact in self._narrowed_runs(is_held):
            seen = of_kind(single[step], kind).get(path), of_kind(exact[step], kind).get(path)
            if seen[0] is not None and seen[1] is not None and seen[0].value.shape == eager.shape:
                yield seen[0].value.to(eager.dtype) - seen[1].value

    def _narrowed_runs(self, is_held: bool) -> Iterator[tuple[Part, Part]]:
        """The runs in float32, each with its own in float64, that took eager's path."""
        for index in range(PAIRS):
            pair = self.runs.narrowed(index, is_held)
            if pair is None:
                return
            if all(self._takes_path(run) for run in pair):
                yield pair

    def _sampled(
        self,
        step: int,
        kind: str,
        path: str,
        wide: torch.dtype | None = None,
        moves_freely: bool = True,
        which: range = range(SAMPLES),
    ) -> Iterator[Tensor]:
        rounded = self._rounded(_steps_of(step, kind, path)[0]) if wide is None else None
        for run in self._runs(wide, moves_freely, which, rounded):
            seen = of_kind(run[step], kind).get(path)
            if seen is not None:
                yield seen.value

    def _sampled_numbers(self, step: int, path: str) -> Iterator[Tensor]:
        for run in self._runs(rounded=self._rounded(step)):
            number = run[step].scalars.get(path)
            if type(number) is float:
                yield torch.tensor(number, dtype=torch.float64)

    def _runs(
        self,
        wide: torch.dtype | None = None,
        moves_freely: bool = True,
        which: range = range(SAMPLES),
        rounded: torch.dtype | None = None,
    ) -> Iterator[Part]:
        """The perturbed runs of those numbers that took eager's path."""
        for index in which:
            run = self.runs.nudged(wide, moves_freely, index, rounded)
            if run is None:
                return
            if self._takes_path(run):
                yield run

    def _takes_path(self, run: Part) -> bool:
        if id(run) not in self._paths:
            self._paths[id(run)] = takes_path_of(run, self.eager)
        return self._paths[id(run)]

    def _across(self, step: int, kind: str, path: str, count: int) -> Iterator[Tensor]:
        """The values of so many float64 runs across kinks."""
        if not self.has_kinks or not self._wide_runs():
            return
        for index in range(count):
            run = self.runs.across_kinks(index)
            seen = None if run is None else of_kind(run[step], kind).get(path)
            if seen is not None:
                yield seen.value

    def _fan_in(self, step: int, seen: Seen | None) -> float:
        if seen is None:
            return 1.0
        if step not in self._elements:
            self._elements[step] = sum(other.value.numel() for other in self.eager[step].state.values())
        return max(1.0, self._elements[step] / max(1, seen.value.numel()))


def _bytes(run: Run) -> int:
    """The memory of a run's numbers, as if no two observations shared any."""
    looks = (values.values() for seen in run for values in (seen.outputs, seen.state, seen.gradients))
    return sum(one.value.nbytes for values in looks for one in values if one is not None)


def anchored_by(wide: Run, eager: Run) -> Run | str:
    """The float64 run of eager's first acts, or why it is none to judge by."""
    for got, reference in zip(wide, eager, strict=False):
        if got.error is not None and reference.error is None and not reference.is_spent:
            return f"the float64 run raised {name_of(got.error.error)}: {got.error.error}"
    return wide if is_alike(wide, eager[: len(wide)]) else "the float64 run took another path"


def _until_last(places: Iterable[Place]) -> frozenset[int]:
    """The acts up to the last of those places."""
    return frozenset(range(1 + max(step for step, _, _ in places)))


def _elements_of(places: Mapping[Place, Elements | None]) -> Places:
    """Which elements of each place are asked for, as a run has them."""
    return {place: None if some is None else some.places for place, some in places.items()}


def takes_path_of(run: Part, eager: Run) -> bool:
    """Whether a run is the same computation as eager's in the acts that it goes through, and as exact values tell:
    integers, booleans, random state, structure and errors are equal."""
    return all(_is_same_path(got, eager[step]) for step, got in run.items())


def is_alike(run: Run, eager: Run) -> bool:
    """Whether a run draws the same numbers, and gives the same kinds of things, whatever their values. A graph that was
    freed says nothing: a run within modes keeps its graphs, and eager may have raised."""
    return all(
        reference.is_spent
        or (
            (got.error is None) == (reference.error is None)
            and is_same_stream(got.random, reference.random)
            and got.kinds.keys() == reference.kinds.keys()
        )
        for got, reference in zip(run, eager, strict=True)
    )


def _is_same_path(got: Observation, reference: Observation) -> bool:
    return is_alike((got,), (reference,)) and all(
        torch.equal(got.outputs[path].value, seen.value)
        for path, seen in reference.outputs.items()
        if not (seen.value.is_floating_point() or seen.value.is_complex()) and path in got.outputs
    )


def _steps_of(step: int, kind: str, path: str) -> range:
    """The step that a place belongs to. What an earlier one gave and that one looks at again has all those between."""
    return range(int(path.rpartition(" of step ")[2]) - 1 if kind == "earlier" else step, step + 1)


def _is_equal_at(got: Observation, reference: Observation, kind: str, path: str, which: Tensor | None) -> bool:
    """Whether two observations have the same there, bit for bit; of some elements, the first has no more than that."""
    if kind == NUMBER:
        return repr(got.scalars.get(path)) == repr(reference.scalars.get(path))
    one, other = of_kind(got, kind).get(path), of_kind(reference, kind).get(path)
    if one is None or other is None:
        return False
    known = elements_at(other.value, which)
    is_alike = (one.value.shape, one.value.dtype) == (known.shape, known.dtype)
    return is_alike and torch.equal(bits(one.value), bits(known))


NUMBER = "number"
"""The kind of a Python float of the result."""


def of_kind(observation: Observation, kind: str) -> Mapping[str, Seen | None]:
    kinds: dict[str, Mapping[str, Seen | None]] = {
        "values": observation.outputs,
        "mutation": observation.state,
        "gradient": observation.gradients,
        "earlier": observation.earlier,
    }
    return kinds[kind]
