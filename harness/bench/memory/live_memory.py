"""One training step by its memory: the bytes that are live at each moment, measured and as the compiler planned them.

It also says of each value that backward needs whether it is kept or made again, and why. A warmed-up step is measured
under torch's profiler, by torch's allocator. What libraries take beside that allocator is not in it. `assay bench`
measures the peak of resident memory, which is the same within `BESIDE_SHARE` and `BESIDE_BYTES`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from assay.compiler.ir.graph.decisions import Decision, Plan, Told
from assay.compiler.journal import listening
from assay.harness.backends.registry import resolve
from assay.harness.bench.steps import Wrap, make_step
from assay.harness.case import Case

FORWARD = "assay: forward"
BESIDE_SHARE, BESIDE_BYTES = 0.02, 2 << 20
"""Resident beside allocated MB: BERT (`small`) 32.3 and 32.2, in eager 45.3 and 45.0; the transformer of `assay bench
memory` 160.4 and 160.1, at budget 0.5 73.2 and 73.0, in eager 222.2 and 221.4."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Live bytes over a step: `points` are (milliseconds, bytes) from its begin, forward ends at `forward_ms`."""

    points: tuple[tuple[float, int], ...]
    forward_ms: float

    @property
    def end_ms(self) -> float:
        return max((at for at, _ in self.points), default=self.forward_ms)

    @property
    def peak(self) -> tuple[float, int]:
        """When most is live, and how much."""
        return max(self.points, key=lambda point: point[1], default=(0.0, 0))

    @property
    def kept_bytes(self) -> int:
        """What is live when forward ends."""
        return next((live for at, live in reversed(self.points) if at <= self.forward_ms), 0)

    @staticmethod
    def of(data: dict[str, Any]) -> Curve:
        return Curve(tuple((at, live) for at, live in data["points"]), data["forward_ms"])


@dataclass(frozen=True, slots=True)
class Value:
    """A value that backward needs, as the compiler's `Decision` has it, of one of its graphs."""

    graph: str
    name: str
    call: str
    is_saved: bool
    reason: str
    keep_ps: int | None
    again_ps: int | None
    shape: str
    bytes: int
    held_bytes: int
    module: str
    line: str
    readers: tuple[str, ...]

    @staticmethod
    def of(graph: str, decision: Decision) -> Value:
        fields = {name: getattr(decision, name) for name in (f.name for f in dataclasses.fields(Decision))}
        why = fields.pop("why")
        return Value(graph, **fields, reason=why.reason.value, keep_ps=why.keep_ps, again_ps=why.again_ps)


@dataclass(frozen=True, slots=True)
class Memory:
    """What one step came to. `planned` is None, and `values` are none, for a backend that tells nothing of itself."""

    measured: Curve
    planned: Curve | None
    values: tuple[Value, ...]

    @staticmethod
    def of(data: dict[str, Any]) -> Memory:
        """The same from what `dataclasses.asdict` makes of it, once it has been JSON."""
        values = tuple(Value(**{**value, "readers": tuple(value["readers"])}) for value in data["values"])
        return Memory(Curve.of(data["measured"]), data["planned"] and Curve.of(data["planned"]), values)


def measure(case: Case, backend: str, size: str, seed: int) -> Memory:
    """Compiles the case and looks at a step of training. Raises: what the case or the backend does."""
    return measure_step(case, "train", resolve(backend).wrap, size=size, seed=seed)


def measure_step(case: Case, mode: str, inner: Wrap, *, size: str, seed: int) -> Memory:
    """The same of a step in either mode, of what `inner` makes of the program."""
    with listening() as told:
        step = make_step(case, mode, lambda function: marked(inner(function)), size=size, seed=seed, device="cpu")
        step()
        step()
    measured = profiled(step)
    values = tuple(Value.of(graph, each) for graph, made in told.decisions.items() for each in made)
    return Memory(measured, planned(told, measured), values)


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which tells the profiler how long it takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(FORWARD):
            return function(*args, **kwargs)

    return call


def profiled(step: Callable[[], object]) -> Curve:
    """The bytes that a step allocates and frees, by torch's allocator of the CPU. A step before it is profiled too, and
    pays for what the profiler does first."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
        step()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    forward = max((event for event in events if event.name() == FORWARD), key=lambda event: event.start_ns())
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    points, live = [(0.0, 0)], 0
    for at, change in (each for each in changes if each[0] >= forward.start_ns()):
        live += change
        points.append(((at - forward.start_ns()) / 1e6, live))
    return Curve(tuple(points), (forward.end_ns() - forward.start_ns()) / 1e6)


def planned(told: Told, measured: Curve) -> Curve | None:
    """What the plans of the graphs say, one after another: backwards come in the order in which they were built. Their
    steps are spread evenly over forward and backward as measured. None where nothing was told."""
    levels: dict[bool, list[int]] = {False: [], True: []}
    live = 0
    for plan in sorted(told.plans, key=lambda plan: plan.is_backward):
        found = list(_levels(plan, live))
        levels[plan.is_backward] += found
        live = found[-1] - (_dropped_bytes(plan, told) if not plan.is_backward else 0)
    if not told.plans:
        return None
    forward = _spread(levels[False], 0.0, measured.forward_ms)
    backward = _spread(levels[True], measured.forward_ms, measured.end_ms)
    return Curve((*forward, *backward), measured.forward_ms)


def _levels(plan: Plan, live: int) -> Iterator[int]:
    """The live bytes after each step of a graph that begins with `live`, of which it frees what it was given."""
    for moment in plan.moments:
        yield live + moment.live_bytes - (plan.moments[0].live_bytes if plan.is_backward else 0)


def _dropped_bytes(plan: Plan, told: Told) -> int:
    """What a forward returns that backward does not need: the caller drops it."""
    kept = sum(each.held_bytes for each in told.decisions.get(plan.graph, ()) if each.is_saved)
    return max(plan.moments[-1].live_bytes - kept, 0)


def _spread(levels: Sequence[int], start: float, end: float) -> Iterator[tuple[float, int]]:
    for place, level in enumerate(levels):
        yield start + (end - start) * place / max(len(levels) - 1, 1), level
