"""Runs one case against eager: `run_case` is the whole of the harness for one row of the report.

A case is made once, from the seed. Every run gets a copy of its own: eager twice, eager in float64, then the backend.
What follows from the comparison is one verdict, the first of these that applies:

    no-oracle            the case could not be made or copied: there is nothing to compare with
    unsupported          the backend declined the program, by Unsupported, or NotImplementedError while compiling
    crash                the backend raised where eager did not
    diverged             a field differs; `differences` names it; not where a step of the gradient lies between two
                         right programs (harness/beside.py), and a neighbouring call is judged instead
    reference-unstable   eager differs from itself in a field, or at another place in a vector (harness/placed.py) does
                         what the backend did, or goes as far on neighbouring numbers; the rest is the same
    no-oracle            a field cannot be judged because the backend draws its own random numbers; the rest is the same
    crash                the backend raised in a call that was timed
    fell-back            the values are right, but some of the program ran in eager for the backend's own reasons
                         (harness/fell_back.py)
    same

`timeout`, and `crash` by a signal, come from `harness.isolate`. Eager that raises is no obstacle: a backend that
raises the same class is `same`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.utils import counters

from harness import backends, beside, fell_back, resources
from harness.backends import Backend
from harness.case import Case
from harness.clone import Call, CloneError, Convert, copy_call, narrowed, nearby, nudged, widened
from harness.compare import Comparison, compare, is_identical
from harness.errors import is_refusal, is_same_error, name_of, place_of, unwrapped
from harness.float64 import NARROW, SINGLE, WIDER, Coarse, Drawn, Recast
from harness.measure import CountedStep, alternate, quartiles
from harness.observe import STEPS, Raised, observe, one_step, seed_all, set_mode
from harness.oracle import Oracle, Run, takes_path_of
from harness.outcome import Difference, Result
from harness.placed import PLACES, Placed
from harness.tree import walk_call

BOTH_RAISE = "both raise"
"""How the detail of a row begins where eager raises too."""
ROUNDS = 5
SAMPLE_S = 0.01


class CaseError(ValueError):
    """A case that cannot be made; the message says what its function did, where, and what it should return."""


@dataclass(frozen=True, slots=True)
class _Timing:
    """Medians and quartiles; nothing where no more calls were made. `failed`: what the backend raised in one."""

    eager_ms: float | None = None
    ms: float | None = None
    eager_ms_spread: tuple[float, float] | None = None
    ms_spread: tuple[float, float] | None = None
    speed_spread: tuple[float, float] | None = None
    failed: Raised | None = None


def run_case(
    case: Case,
    mode: str,
    backend: str | Backend,
    *,
    size: str = "tiny",
    seed: int = 0,
    device: str = "cpu",
    timed: bool = True,
    steps: int = STEPS,
    quick: bool = False,
    is_poked: bool = True,
    looks_beside: bool | None = None,
) -> Result:
    """One case in one mode on one backend, observed over `steps` steps and held against eager; over as many as it has
    `numbers`, if it has any.

    With `quick`, a backend that does bit for bit what one run of eager did is `same`; eager's further runs, which
    only ever excuse a difference, are made when something differs. `is_poked`: outputs are written to after the last
    step, which takes time by the square of their number. `looks_beside`: where only gradients differ, neighbouring
    numbers may be judged (harness/beside.py), which takes as long again; unless `quick`, if not said.

    Raises: BackendError for a backend that does not exist, ValueError for a mode that the case does not have.
    Whatever the case or the backend raises is a verdict.
    """
    resolved = backends.resolve(backend) if isinstance(backend, str) else backend
    if mode not in case.modes:
        raise ValueError(f"{case.name} has no mode {mode!r}; it has {', '.join(case.modes)}")
    torch._dynamo.reset()
    counters.clear()
    try:
        call = made_call(case, size, seed, device)
        with resources.of_case(f"{case.name} {mode} {resolved.name}"):
            looks_beside = not quick if looks_beside is None else looks_beside
            steps = len(case.numbers) or steps
            trial = _Trial(case, mode, resolved, call, seed, steps, is_poked, looks_beside)
            return trial.result(timed, quick)
    except (CaseError, CloneError) as error:
        return Result(case.name, mode, resolved.name, "no-oracle", detail=str(error))
    finally:
        torch._dynamo.reset()


def made_call(case: Case, size: str, seed: int, device: str) -> Call:
    """The case's callable and arguments, made from the seed, on the device.

    Raises: CaseError if its function raises or does not return `(callable, args, kwargs)`.
    """
    seed_all(seed)
    try:
        made = case.make(size)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise CaseError(
            f"case {case.name}: making it failed at {frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"
        ) from error
    if (wrong := _wrong_with(made)) is not None:
        code = case.function.__code__
        raise CaseError(
            f"case {case.name} ({code.co_filename}:{code.co_firstlineno}) {wrong}; "
            "its function must return (callable, args, kwargs), a tuple of a callable, a tuple and a dict"
        )
    function, args, kwargs = made
    return copy_call(Call(function, args, kwargs), device=None if device == "cpu" else device)


def _wrong_with(made: object) -> str | None:
    if not isinstance(made, tuple) or len(made) != 3:
        length = f" of {len(made)}" if isinstance(made, tuple) else ""
        return f"returned a {type(made).__name__}{length}"
    function, args, kwargs = made
    if not callable(function):
        return f"returned a {type(function).__name__} in the place of the callable"
    if not isinstance(args, tuple):
        return f"returned a {type(args).__name__} in the place of the args"
    return None if isinstance(kwargs, dict) else f"returned a {type(kwargs).__name__} in the place of the kwargs"


@dataclass(frozen=True, slots=True)
class _Trial:
    """A case in a mode on a backend, with its pristine call: what every run of it is copied from."""

    case: Case
    mode: str
    backend: Backend
    call: Call
    seed: int
    steps: int
    is_poked: bool
    looks_beside: bool = True

    def result(self, timed: bool, quick: bool) -> Result:
        eager = self._observed(self._copies())
        oracle = None if quick else self._oracle(eager)
        before = backends.statistics(self.backend.name)
        with self.backend.ambient():
            calls = self._copies()
            compiled = compiled_by(self.backend, calls[0].function)
            ours = observe(calls, self.mode, self.seed, compiled, self.case.scenario, self.is_poked)
            timed = timed and not self._is_about_meaning() and _is_timable(eager, ours, calls)
            timing = self._timing(calls[-1], compiled) if timed else _Timing()
        del calls, compiled
        if quick and is_identical(eager, ours):
            return self._row(*_verdict(eager, ours, Comparison()), Comparison(), ours, timing, before)
        if oracle is None:
            gc.collect()  # the backend's copies of parameters and gradients stand in the way of eager's in float64
            oracle = self._oracle(eager)
        comparison = self._comparison(oracle, ours)
        verdict, detail = _verdict(oracle.eager, ours, comparison)
        if verdict == "diverged" and (place := self._place_of(oracle, ours)) is not None:
            verdict, detail = "reference-unstable", f"eager does the same where it computes {place}"
        row = self._row(verdict, detail, comparison, ours, timing, before)
        if verdict == "diverged" and self.looks_beside and not self.backend.has_eagers_bits:
            if self._is_same_beside(oracle, ours, comparison):
                return dataclasses.replace(row, verdict="same", detail=beside.NOTE, differences=())
        return row

    def _comparison(self, oracle: Oracle, ours: Run) -> Comparison:
        return compare(
            oracle,
            ours,
            own_random_stream=self.backend.has_own_random_stream,
            with_hooks="hooks" in self.case.tags,
            with_bookkeeping="bookkeeping" in self.case.tags,
            with_strides="strides" in self.case.tags,
            by_bits=self.backend.has_eagers_bits,
        )

    def _place_of(self, oracle: Oracle, ours: Run) -> str | None:
        """At which other place in a vector eager does what the backend did; nothing on devices without them."""
        if not self._is_on_cpu():
            return None
        for name, place in PLACES.items():
            with Placed(place):
                eager = self._observed(self._copies())
            elsewhere = Oracle(eager, eager, oracle.wide, oracle.nudged, oracle.narrowed)
            if not is_identical(oracle.eager, eager) and not self._comparison(elsewhere, ours).different:
                return name
        return None

    def _is_on_cpu(self) -> bool:
        """Whether any tensor of the call is."""
        tensors = walk_call(self.call.function, self.call.args, self.call.kwargs).tensors.values()
        return any(tensor.device.type == "cpu" for tensor in tensors)

    def _is_same_beside(self, oracle: Oracle, ours: Run, comparison: Comparison) -> bool:
        """Whether the backend does what eager does on neighbouring numbers, where only a step of the gradient is
        between them: each gradient that differs on some of those where eager's stays."""
        left = {difference.path for difference in comparison.different}
        for index, steady in beside.steady_neighbours(oracle, ours, comparison.different):
            if left.isdisjoint(steady):
                continue
            torch._dynamo.reset()
            call = copy_call(self.call, nudged(self.seed + index + 1))
            trial = dataclasses.replace(self, call=call, is_poked=False, looks_beside=False)
            found = trial.result(timed=False, quick=False)
            if found.verdict == "same" or (found.verdict == "diverged" and beside.are_gradients(found.differences)):
                left -= steady - {difference.path for difference in found.differences}
            if not left:
                return True
        return False

    def _is_about_meaning(self) -> bool:
        """Whether the case is there for what it does, so that its speed would tell nothing."""
        return self.case.scenario is not None or "bookkeeping" in self.case.tags

    def _row(
        self,
        verdict: str,
        detail: str,
        comparison: Comparison,
        ours: Run,
        timing: _Timing,
        before: backends.Statistics,
    ) -> Result:
        counted = backends.counted_since(before, backends.statistics(self.backend.name))
        graph_breaks = sum(counters["graph_break"].values())
        if timing.failed is not None and verdict not in ("crash", "diverged"):
            verdict, detail = verdict_of_error(len(ours) + 1, timing.failed)
        in_eager = fell_back.seen(counted, ours)
        if verdict == "same" and in_eager.is_given_nothing and self.backend.uses_dynamo:
            in_eager = fell_back.without_graphs(self.case, self._copies()[0], self.mode, self.seed)
        verdict, detail = in_eager.judged(verdict, detail)
        return Result(
            case=self.case.name,
            mode=self.mode,
            backend=self.backend.name,
            verdict=verdict,
            differences=_reported(comparison),
            eager_ms=timing.eager_ms,
            ms=timing.ms,
            compile_s=ours[0].seconds if ours[0].error is None else None,
            nodes=counted.nodes,
            nodes_generated=counted.nodes_generated,
            fallbacks=counted.fallbacks,
            graph_breaks=graph_breaks,
            detail="; ".join(part for part in (detail, *comparison.notes) if part),
            eager=in_eager.nodes_by_reason,
            eager_ms_spread=timing.eager_ms_spread,
            ms_spread=timing.ms_spread,
            speed_spread=timing.speed_spread,
        )

    def _oracle(self, eager: Run) -> Oracle:
        again = self._observed(self._copies())
        draws = any(observation.uses_random for observation in eager)
        return Oracle(eager, again, self._wide(eager), functools.partial(self._nudged, draws), self._narrowed)

    def _wide(self, eager: Run) -> Run | str:
        """The float64 run, or why it is no anchor."""
        try:
            wide = self._widened(torch.float64)
        except CloneError as error:
            return str(error)
        for got, reference in zip(wide, eager, strict=True):
            if got.error is not None and reference.error is None:
                return f"the float64 run raised {name_of(got.error.error)}: {got.error.error}"
        return wide if takes_path_of(wide, eager) else "the float64 run took another path: exact values differ"

    def _nudged(self, draws: bool, index: int, wide: torch.dtype | None, moves_whole: bool) -> Run:
        move = nudged(self.seed + index + 1, moves_whole)
        if wide is not None:
            return self._widened(wide, move)
        with Drawn(nudged(self.seed + index + 1, moves_whole=False)) if draws else contextlib.nullcontext():
            return self._observed(self._copies(move), is_poked=False, moved=move)

    def _widened(self, wide: torch.dtype, move: Convert | None = None) -> Run:
        """An eager run in a wider dtype. Raises: CloneError for a call that cannot be copied into it."""

        def convert(flat: Tensor) -> Tensor:
            made = widened(flat, wide)
            return move(made) if move is not None else made

        mode = Recast(_own_dtype(self.call, NARROW), wide, WIDER[wide])
        return self._recast(self._copies(convert), mode, wide, move)

    def _narrowed(self, index: int, is_held: bool) -> tuple[Run, Run]:
        """Run `index` in float32, and in float64 on the very same numbers: what differs is what float32 rounds. Where
        float32 does not hold the numbers, all is rounded to its precision in float64.

        Raises: CloneError for a call that cannot be copied into float32.
        """
        if not is_held:
            calls = [self._copies(nearby(self.seed + index + 1)) for _ in range(2)]
            with Coarse():
                coarse = self._observed(calls[0], is_poked=False)
            return coarse, self._observed(calls[1], is_poked=False)
        mode = Recast(torch.float64, torch.float32, SINGLE)
        seed = self.seed + index + 1
        single, exact = narrowed(seed), narrowed(seed)  # each draws the same moves in the same order

        def widen(flat: Tensor) -> Tensor:
            return exact(flat).to(flat.dtype)

        return (
            self._recast(self._copies(single), mode, torch.float32),
            self._observed(self._copies(widen), is_poked=False),
        )

    def _recast(self, calls: tuple[Call, ...], mode: Recast, dtype: torch.dtype, move: Convert | None = None) -> Run:
        """An eager run under the mode, with the dtype as the default one."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with mode:
                return self._observed(calls, is_poked=False, moved=move)
        finally:
            torch.set_default_dtype(default)

    def _observed(self, calls: tuple[Call, ...], is_poked: bool = True, moved: Convert | None = None) -> Run:
        """An eager run."""
        is_poked = is_poked and self.is_poked
        return observe(calls, self.mode, self.seed, scenario=self.case.scenario, is_poked=is_poked, moved=moved)

    def _copies(self, convert: Convert | None = None) -> tuple[Call, ...]:
        """The call for each step: the same one, but for inputs that are not leaves, which each step gets afresh.

        In training, a case with the tag `fresh` gets all of them so: an input that a step writes may gain a history
        that the backward of that step uses up.
        """
        first = copy_call(self.call, convert)
        if self.mode == "infer" or not (first.leaves or "fresh" in self.case.tags):
            return self._numbered([first] * self.steps)
        later = [copy_call(self.call, convert) for _ in range(self.steps - 1)]
        return self._numbered(
            [first, *(Call(first.function, call.args, call.kwargs, first.leaves | call.leaves) for call in later)]
        )

    def _numbered(self, calls: list[Call]) -> tuple[Call, ...]:
        """The calls, each with the numbers that the case has for it."""
        if not self.case.numbers:
            return tuple(calls)
        pairs = zip(calls, self.case.numbers, strict=True)
        return tuple(dataclasses.replace(call, args=(*call.args, *numbers)) for call, numbers in pairs)

    def _timing(self, ours: Call, compiled: Callable[..., Any]) -> _Timing:
        """Alternating calls; nothing where eager raises in a further call too."""
        (eager, *_) = self._copies()
        set_mode(eager, self.mode)
        made = CountedStep(functools.partial(one_step, ours, compiled, self.mode, self.seed), self.steps)
        reference = CountedStep(functools.partial(one_step, eager, eager.function, self.mode, self.seed))
        try:
            reference()
            times = alternate(made, reference, rounds=ROUNDS, sample_s=SAMPLE_S)
        except Exception as error:
            is_ours = made.failed is error and not reference.raises_by(made.calls)
            return _Timing(failed=Raised(error, "call to be timed")) if is_ours else _Timing()
        spreads = (quartiles(times.theirs), quartiles(times.ours), times.spread)
        return _Timing(times.theirs_ms, times.ours_ms, *spreads)


def compiled_by(backend: Backend, function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled callable; one that raises at its first call, if compiling raises before any call."""
    try:
        return backend.wrap(function)
    except Exception as error:
        failure = error  # the name `error` ends with this block

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise failure

        return fail


def _is_timable(eager: Run, ours: Run, calls: Sequence[Call]) -> bool:
    """Whether more calls on the same objects make sense: nothing raised, and no input's graph is used up."""
    return all(step.error is None for step in (*eager, *ours)) and all(call is calls[0] for call in calls)


def _own_dtype(call: Call, dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """Which of the dtypes most of the call's tensors have; the default one where none has."""
    tensors = walk_call(call.function, call.args, call.kwargs).tensors.values()
    found = Counter(tensor.dtype for tensor in tensors if tensor.dtype in dtypes)
    return found.most_common(1)[0][0] if found else torch.get_default_dtype()


def _verdict(eager: Run, ours: Run, comparison: Comparison) -> tuple[str, str]:
    for index, (reference, got) in enumerate(zip(eager, ours, strict=True), 1):
        if got.error is not None and (reference.error is None or _is_refused(got.error, reference.error)):
            return verdict_of_error(index, got.error)
    if comparison.different:
        return "diverged", _said_by_eager(eager)
    if comparison.unstable:
        return "reference-unstable", "eager differs from itself"
    if comparison.untold:
        return "reference-unstable", "eager on neighbouring numbers is as far from itself"
    return ("no-oracle", "") if comparison.unjudged else ("same", _said_by_eager(eager))


def _is_refused(ours: Raised, eager: Raised) -> bool:
    """Whether the backend declined a program that eager rejects, so that it could not reject it alike."""
    return is_refusal(ours.error) and not is_same_error(eager.error, ours.error)


def verdict_of_error(step: int, raised: Raised) -> tuple[str, str]:
    """The verdict on a backend that raised where eager did not, and what it raised."""
    error = raised.error
    if is_refusal(error):
        return "unsupported", f"step {step}, {raised.during}: {name_of(error)}: {first_lines(unwrapped(error)[-1])}"
    place = f" at {where}" if (where := place_of(error)) else ""
    return "crash", f"step {step}, {raised.during}: {name_of(error)}{place}: {first_lines(unwrapped(error)[-1])}"


def _said_by_eager(eager: Run) -> str:
    raised = next((step.error for step in eager if step.error is not None), None)
    return f"{BOTH_RAISE} {name_of(raised.error)}" if raised else ""


def first_lines(error: BaseException) -> str:
    """The beginning of what an error says, in one line."""
    return " ".join(line.strip() for line in str(error).strip().splitlines()[:3])


def _reported(comparison: Comparison) -> tuple[Difference, ...]:
    """What differs, then what is unstable and what has no oracle, each saying so."""
    unstable = (
        dataclasses.replace(difference, detail=f"reference-unstable: of two eager runs, {difference.detail}")
        for difference in comparison.unstable
    )
    untold = (
        dataclasses.replace(difference, detail=f"reference-unstable: {difference.detail}")
        for difference in comparison.untold
    )
    return (*comparison.different, *unstable, *untold, *comparison.unjudged)
