"""Runs one case against eager: `run_case` is the whole of the harness for one row of the report.

A case is made once, from the seed. Every run gets a copy of its own: eager twice, eager in float64, then the backend.
What follows from the comparison is one verdict, the first of these that applies:

    no-oracle            the case could not be made or copied: there is nothing to compare with
    unsupported          the backend declined the program, by Unsupported, or NotImplementedError while compiling
    crash                the backend raised where eager did not
    diverged             a field differs; `differences` names it
    reference-unstable   eager differs from itself in a field, or does at another place in a vector what the backend did
                         (harness/judge/vector_tails.py), or is far from its own float64 run; the rest is the same
    no-oracle            a field cannot be judged: the backend draws its own random numbers, or nothing anchors eager's
    crash                the backend raised in a call that was timed
    fell-back            the values are right, but some of the program ran in eager for the backend's own reasons
                         (harness/observe/fell_back.py)
    same

`timeout`, and `crash` by a signal, come from `assay.harness.processes.isolate`. Eager that raises is no obstacle: a
backend that raises the same class is `same`.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.utils import counters

from assay.harness.backends import registry as backends
from assay.harness.backends import resources
from assay.harness.backends.registry import Backend
from assay.harness.calls.clone import Call, CloneError, copy_call
from assay.harness.calls.errors import is_refusal, is_same_error, name_of, place_of, unwrapped
from assay.harness.calls.memory import give_back
from assay.harness.calls.tree import walk_call
from assay.harness.case import Case
from assay.harness.judge.compare import Comparison, Rules, compare, is_different, is_identical
from assay.harness.judge.eager_runs import EagerRuns, Run
from assay.harness.judge.oracle import Oracle
from assay.harness.judge.vector_tails import PLACES, Placed
from assay.harness.measure import CountedStep, alternate, quartiles
from assay.harness.observe import ambient, fell_back, leaks
from assay.harness.observe.observation import (
    WITHOUT_POKES,
    Observation,
    Raised,
    Script,
    Seen,
    Watch,
    observe,
    one_step,
    seed_all,
    set_mode,
)
from assay.harness.observe.scripts import Scripts, acts_for, bytes_of_state
from assay.harness.observe.traits import traits_of
from assay.harness.outcome import Difference, Result
from assay.harness.protocol.acts import FEW, Protocol
from assay.harness.timed_alone import alone

LARGE_BYTES = 1 << 26
"""Of parameters and buffers: of such a program, memory is given back after each run."""
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


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How a case is made, and what is run of it.

    The protocol is that of harness/protocol/acts.py where none is given, with all of the further acts if `is_thorough`.
    With `quick`, a backend that does bit for bit what one run of eager did is `same`. With `is_poked`, outputs are
    written to after the last step. `timed`: further calls are timed. `most_acts`: the protocol ends after so many.
    """

    size: str = "tiny"
    seed: int = 0
    device: str = "cpu"
    timed: bool = True
    protocol: Protocol | None = None
    is_thorough: bool = False
    quick: bool = False
    is_poked: bool = True
    most_acts: int | None = None


DEFAULT_REQUEST = RunRequest()


def run_case(case: Case, mode: str, backend: str | Backend, asked: RunRequest = DEFAULT_REQUEST) -> Result:
    """One case in one mode on one backend, observed over the acts of a protocol and held against eager.

    A case that has `numbers` is called as many times as it has any; one that brings a scenario, a few times. Eager's
    further runs only ever excuse a difference, so with `quick` they are made when something differs. Writing to
    outputs takes time by the square of their number.

    Raises: BackendError for a backend that does not exist, ValueError for a mode that the case does not have. Whatever
    the case or the backend raises is a verdict.
    Units: milliseconds and seconds, as the names of the result's fields say.
    """
    resolved = backends.resolve(backend) if isinstance(backend, str) else backend
    if mode not in case.modes:
        raise ValueError(f"{case.name} has no mode {mode!r}; it has {', '.join(case.modes)}")
    torch._dynamo.reset()
    counters.clear()
    try:
        size, seed, device = asked.size, asked.seed, asked.device
        call = made_call(case, size, seed, device)
        with resources.of_case(f"{case.name} {mode} {resolved.name}"):

            def make(which: int) -> Call:
                return made_call(case, size, seed + which, device)

            acts = asked.protocol or acts_for(case, mode, asked.is_thorough, bytes_of_state(call))
            acts = acts[: asked.most_acts]
            scripts = Scripts(case, mode, acts, call, make, watches_leaks=len(acts) > len(FEW[mode]))
            scripts = scripts.in_dtypes_it_takes(seed)
            if device != "cpu" and len(acts) > len(FEW[mode]):
                scripts = scripts.without(_on_the_host(scripts, size, seed))
            watch = Watch(is_poked=asked.is_poked)
            traits = traits_of(walk_call(call.function, call.args, call.kwargs).tensors.values())
            row = _Trial(case, mode, resolved, call, seed, scripts, watch).result(asked.timed, asked.quick)
            return dataclasses.replace(row, dtypes=traits.dtypes, layouts=traits.layouts)
    except (CaseError, CloneError) as error:
        return Result(case.name, mode, resolved.name, "no-oracle", detail=str(error))
    finally:
        torch._dynamo.reset()


def _on_the_host(scripts: Scripts, size: str, seed: int) -> Run:
    """An eager run on the CPU: an index out of range, which raises there, ends a process that uses a GPU."""

    def make(which: int) -> Call:
        return made_call(scripts.case, size, seed + which, "cpu")

    on_host = dataclasses.replace(scripts, own=make(0), make=make, watches_leaks=False, _pristine={}, _moved={})
    return observe(on_host.script(), scripts.mode, seed, scenario=scripts.case.scenario, watch=WITHOUT_POKES)


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
    scripts: Scripts
    watch: Watch

    def result(self, timed: bool, quick: bool) -> Result:
        eager = self._observed(self.scripts.script(watches_leaks=True))
        if (scripts := self.scripts.without(eager)) is not self.scripts:
            return dataclasses.replace(self, scripts=scripts).result(timed, quick)
        self._let_go()
        again = None if quick else self._again(eager)
        before = backends.statistics(self.backend.name)
        with self.backend.ambient():
            script = self.scripts.script(watches_leaks=True)
            compiled = compiled_by(self.backend, first_call(script).function)
            watch = dataclasses.replace(self.watch, like=eager)
            ours = observe(script, self.mode, self.seed, compiled, self.case.scenario, watch)
            timed = timed and self._is_timable(eager, ours, first_call(script))
            timing = self._timing(first_call(script), compiled) if timed else _Timing()
        del script, compiled
        torch._dynamo.reset()  # it holds the program, with its parameters and gradients
        self._let_go()
        if quick and is_identical(eager, ours, self._rules):
            return self._row(*_verdict(eager, ours, Comparison()), Comparison(), ours, timing, before)
        gc.collect()  # the backend's copies of parameters and gradients stand in the way of eager's in float64
        oracle = self._oracle(eager, again or self._again(eager))
        comparison = compare(oracle, ours, self._rules)
        verdict, detail = _verdict(oracle.eager, ours, comparison)
        if verdict == "diverged" and (place := self._place_of(oracle, ours)) is not None:
            verdict, detail = "reference-unstable", f"eager does the same where it computes {place}"
        row = self._row(verdict, detail, comparison, ours, timing, before)
        return row

    @property
    def _rules(self) -> Rules:
        """What the case and the backend say of the comparison."""
        return Rules(
            has_own_random_stream=self.backend.has_own_random_stream,
            with_hooks="hooks" in self.case.tags,
            with_bookkeeping="bookkeeping" in self.case.tags,
            with_strides="strides" in self.case.tags,
            by_bits=self.backend.has_eagers_bits,
        )

    def _place_of(self, oracle: Oracle, ours: Run) -> str | None:
        """At which other place in a vector eager does what the backend did; nothing on devices without them.

        Numbers alone are taken from there. The mode that places operators changes how often versions grow.
        """
        if not self._is_on_cpu():
            return None
        for name, place in PLACES.items():
            with Placed(place):
                placed = self._observed(self.scripts.script())
            eager = tuple(map(_with_numbers_of, oracle.eager, placed))
            if is_identical(oracle.eager, eager, self._rules):
                continue
            if not is_different(oracle.around(eager), ours, self._rules):
                return name
        return None

    def _is_on_cpu(self) -> bool:
        """Whether any tensor of the call is."""
        tensors = walk_call(self.call.function, self.call.args, self.call.kwargs).tensors.values()
        return any(tensor.device.type == "cpu" for tensor in tensors)

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
            in_eager = fell_back.without_graphs(self.case, first_call(self.scripts.script()), self.mode, self.seed)
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
            detail="; ".join(part for part in (detail, *comparison.notes, *_replays(counted.begun)) if part),
            eager=in_eager.nodes_by_reason,
            eager_ms_spread=timing.eager_ms_spread,
            ms_spread=timing.ms_spread,
            speed_spread=timing.speed_spread,
            begun=counted.begun,
        )

    def _again(self, eager: Run) -> Run:
        """Another run of eager, which says where it differs from itself."""
        again = self._observed(self.scripts.script(), like=eager)
        self._let_go()
        return again

    def _oracle(self, eager: Run, again: Run) -> Oracle:
        draws = any(observation.uses_random for observation in eager)
        return Oracle(eager, again, EagerRuns(self.call, self.scripts, self.mode, self.seed, draws))

    def _let_go(self) -> None:
        """Gives the memory of what is over back to the system, if the program is large."""
        if bytes_of_state(self.call) >= LARGE_BYTES:
            give_back()

    def _observed(self, script: Script, like: Run | None = None) -> Run:
        """An eager run; what is equal to another run shares its memory."""
        watch = dataclasses.replace(self.watch, like=like)
        return observe(script, self.mode, self.seed, scenario=self.case.scenario, watch=watch)

    def _is_timable(self, eager: Run, ours: Run, first: Call) -> bool:
        """Whether more calls on the same objects tell something: no call raised, no input's graph is used up."""
        if self._is_about_meaning() or first.leaves or "fresh" in self.case.tags or self.case.numbers:
            return False
        triples = zip(self.scripts.acts, eager, ours, strict=True)
        usual = (triple for triple in triples if triple[0].calls and not triple[0].strays)
        return all(one.error is None and other.error is None for _, one, other in usual)

    def _calls_made(self) -> int:
        """How often the backend's program has been called when it is timed."""
        return sum(act.calls for act in self.scripts.acts) + leaks.ALL_CALLS * self.scripts.watches_leaks

    def _timing(self, ours: Call, compiled: Callable[..., Any]) -> _Timing:
        """Alternating calls; nothing where eager raises in a further call too."""
        eager = first_call(self.scripts.script())
        set_mode(eager, self.mode)
        made = CountedStep(
            functools.partial(one_step, ours, compiled, self.mode, self.seed),
            self._calls_made(),
        )
        reference = CountedStep(functools.partial(one_step, eager, eager.function, self.mode, self.seed))
        try:
            reference()
            with alone(), ambient.put_back():
                times = alternate(made, reference, rounds=ROUNDS, sample_s=SAMPLE_S)
        except Exception as error:
            is_ours = made.failed is error and not reference.raises_by(made.calls)
            return _Timing(failed=Raised(error, "call to be timed")) if is_ours else _Timing()
        spreads = (quartiles(times.theirs), quartiles(times.ours), times.spread)
        return _Timing(times.theirs_ms, times.ours_ms, *spreads)


def _with_numbers_of(eager: Observation, placed: Observation) -> Observation:
    """What eager did, with the numbers of another run where that has the same tensors."""
    found: dict[str, Any] = {name: getattr(placed, name) for name in NUMBERS}
    for name in TENSORS:
        found[name] = _same_kind(getattr(eager, name), getattr(placed, name))
    return dataclasses.replace(eager, **found)


NUMBERS = ("scalars", "written", "unchanged")
"""What of an act is of the numbers of tensors."""
TENSORS = ("outputs", "state", "gradients", "earlier")
"""What an act shows tensors in, by their paths."""


def _same_kind(eagers: Mapping[str, Seen | None], placed: Mapping[str, Seen | None]) -> dict[str, Seen | None]:
    """Eager's tensors, each from the other run where it has the same dtype and shape there."""
    pairs = ((path, seen, placed.get(path)) for path, seen in eagers.items())
    return {path: other if _kind(seen) == _kind(other) else seen for path, seen, other in pairs}


def _kind(seen: Seen | None) -> object:
    return None if seen is None else (seen.value.dtype, seen.value.shape)


def compiled_by(backend: Backend, function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled callable; one that raises at its first call, if compiling raises before any call."""
    try:
        return backend.wrap(function)
    except Exception as error:
        failure = error  # the name `error` ends with this block

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise failure

        return fail


def first_call(script: Script) -> Call:
    """The call that a protocol begins with."""
    (first, *_) = script.calls
    assert first is not None, "a protocol begins with a call"
    return first


def _verdict(eager: Run, ours: Run, comparison: Comparison) -> tuple[str, str]:
    for index, (reference, got) in enumerate(zip(eager, ours, strict=True), 1):
        if got.error is not None and not reference.is_spent and _is_own(got.error, reference.error):
            return verdict_of_error(index, got.error)
    if comparison.different:
        return "diverged", _said_by_eager(eager)
    if comparison.unstable:
        return "reference-unstable", "eager differs from itself"
    if comparison.untold:
        return "reference-unstable", "eager is too far from its float64 run to tell"
    return ("no-oracle", "") if comparison.unjudged else ("same", _said_by_eager(eager))


def _is_own(ours: Raised, eager: Raised | None) -> bool:
    """Whether an error is the backend's own: eager has none, or rejects what the backend declined to take."""
    return eager is None or (is_refusal(ours.error) and not is_same_error(eager.error, ours.error))


def verdict_of_error(step: int, raised: Raised) -> tuple[str, str]:
    """The verdict on a backend that raised where eager did not, and what it raised."""
    error = raised.error
    if is_refusal(error):
        return "unsupported", f"step {step}, {raised.during}: {name_of(error)}: {first_lines(unwrapped(error)[-1])}"
    place = f" at {where}" if (where := place_of(error)) else ""
    return "crash", f"step {step}, {raised.during}: {name_of(error)}{place}: {first_lines(unwrapped(error)[-1])}"


def _said_by_eager(eager: Run) -> str:
    raised = next((step.error for step in eager if step.error is not None and _is_of_program(step)), None)
    return f"{BOTH_RAISE} {name_of(raised.error)}" if raised else ""


def _is_of_program(step: Observation) -> bool:
    """Whether an error says something of the program: not one of a backward alone, which may be asked for in vain, nor
    one of an index that is out of range for that."""
    return step.act.startswith("call") and not step.has_stray


def first_lines(error: BaseException) -> str:
    """The beginning of what an error says, in one line."""
    return " ".join(line.strip() for line in str(error).strip().splitlines()[:3])


def _replays(begun: Mapping[str, int]) -> tuple[str, ...]:
    """How many calls were replays of a recording, where any was recorded."""
    return (f"{begun.get('replayed', 0)} replays observed",) if begun.get("recorded") else ()


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
