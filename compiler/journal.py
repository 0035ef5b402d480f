"""The journal: what each compile did. Every stage's text, its time, and the counts that the harness reads.

totals()   {"nodes": 120, "nodes_generated": 96, "fallbacks": {"aten.mm.default": 12}, "compiles": 1, ...}
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assay.compiler.ir.graph.decisions import Decision, Moment, Plan, Told
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Counts, Launch, Schedule
from assay.compiler.options import Options

log = logging.getLogger("assay")
_lock = threading.Lock()
_said: set[str] = set()


@dataclass(slots=True)
class Totals:
    """Counts over every compile of this process since the last `reset`."""

    compiles: int = 0
    nodes: int = 0
    nodes_generated: int = 0
    kernels: int = 0
    eager_graphs: int = 0
    cuts: int = 0
    pieces: int = 0
    loops: int = 0
    stepwise: Counter[str] = field(default_factory=Counter)
    eager: Counter[str] = field(default_factory=Counter)
    backwards: int = 0
    eager_backwards: Counter[str] = field(default_factory=Counter)
    restored: int = 0
    recorded: int = 0
    replayed: int = 0
    apart: int = 0
    tuned: int = 0
    failed_builds: int = 0
    products: Counter[str] = field(default_factory=Counter)
    unrecorded: Counter[str] = field(default_factory=Counter)
    uncached: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)


_totals = Totals()
_serial = 0
_listeners: list[Told] = []


def totals() -> dict[str, object]:
    """The counts so far: `nodes` are compute nodes (no views, contractions, allocations), `seconds` are per stage.

    `eager_graphs` are the graphs that ran in eager as a whole, `cuts` the parts that were cut out of others and ran in
    eager, `eager` the nodes of both by the reason. `pieces` are the compiles of what stands around such parts, of
    regions, and of what stands between regions. `loops` are the bodies of loops that were compiled with all their steps
    as one call, `stepwise` those whose steps are calls of their own, by the reason.

    `backwards` are the whole backwards that compiled autograd has recorded, `eager_backwards` those that ran in eager,
    or in part, by the reason.

    `restored` are the compiles that were made from what the cache keeps, `uncached` those that it takes no part in, by
    their reasons. `tuned` are the kernels whose tiles were chosen by measuring, `products` the products of matrices
    with pointwise work around them that measuring left to the `library`, or gave `tiles` of our own. `failed_builds`
    are the programs that Triton failed on, so that another form of them runs. `recorded` are the
    graphs of a GPU that became a CUDA graph, `replayed` the calls that were one, `unrecorded` the graphs that may not
    be, by their reasons; `apart` counts those that could not share their memory with others, for what was held of them.
    """
    return {
        "compiles": _totals.compiles,
        "nodes": _totals.nodes,
        "nodes_generated": _totals.nodes_generated,
        "kernels": _totals.kernels,
        "eager_graphs": _totals.eager_graphs,
        "cuts": _totals.cuts,
        "pieces": _totals.pieces,
        "loops": _totals.loops,
        "stepwise": dict(_totals.stepwise),
        "eager": dict(_totals.eager),
        "backwards": _totals.backwards,
        "eager_backwards": dict(_totals.eager_backwards),
        "restored": _totals.restored,
        "recorded": _totals.recorded,
        "replayed": _totals.replayed,
        "apart": _totals.apart,
        "tuned": _totals.tuned,
        "failed_builds": _totals.failed_builds,
        "products": dict(_totals.products),
        "unrecorded": dict(_totals.unrecorded),
        "uncached": dict(_totals.uncached),
        "fallbacks": dict(_totals.fallbacks),
        "seconds": dict(_totals.seconds),
    }


def reset() -> None:
    """Starts counting anew."""
    global _totals
    _totals = Totals()


def say_once(message: str) -> None:
    """A warning that a process shows a single time."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    log.warning(message)


@contextmanager
def listening() -> Iterator[Told]:
    """What the compiles made meanwhile say of their memory; none of them is made from what the cache keeps."""
    told = Told()
    _listeners.append(told)
    try:
        yield told
    finally:
        _listeners.remove(told)


def is_heard() -> bool:
    """Whether somebody listens to what compiles say."""
    return bool(_listeners)


@dataclass(slots=True)
class Journal:
    """The record of one compile. `told` is what a listener hears of its memory; None where nobody listens."""

    options: Options
    name: str
    told: Told | None = None
    _stage: int = 0

    @staticmethod
    def open(options: Options, region: str | None = None) -> Journal:
        """The journal of a new compile. `region` is what the caller calls it."""
        global _serial
        with _lock:
            _serial += 1
            _totals.compiles += 1
        name = f"graph_{_serial:03d}" + ("" if region is None else "_" + re.sub(r"\W+", "_", region))
        return Journal(options, name, _listeners[-1] if _listeners else None)

    def decided(self, decisions: Callable[[], Sequence[Decision]]) -> None:
        """What forward saves and backward makes again, and why."""
        if self.told is not None:
            self.told.decisions[self.name] = tuple(decisions())

    def planned(self, is_backward: bool, moments: Callable[[dict[str, int]], Iterable[Moment]]) -> None:
        """The memory of a graph that was built, by what each of the values that it is given holds."""
        if self.told is not None:
            kept = {each.name: each.held_bytes for each in self.told.decisions.get(self.name, ()) if each.is_saved}
            plan = Plan(self.name, is_backward, tuple(moments(kept if is_backward else {})))
            self.told.plans.append(plan)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            _totals.seconds[name] = _totals.seconds.get(name, 0.0) + time.perf_counter() - start

    def state(self, name: str, text: Callable[[], str]) -> None:
        """Records an intermediate state, whose text is made only when somebody reads it."""
        self._stage += 1
        if self.options.debug >= (4 if name.startswith("source") else 3):
            print(f"# {self.name} after {name}\n{text()}", flush=True)
        if self.options.dump:
            folder = Path(self.options.dump) / self.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self._stage:02d}_{name}.py").write_text(text())

    def kernels(self, schedule: Schedule) -> None:
        """One line a distinct kernel: its launches, the bytes that a launch moves at most, what it computes."""
        if self.options.debug < 2:
            return
        launches = Counter(step.kernel.name for step in schedule.steps if isinstance(step, Launch))
        for kernel in schedule.kernels:
            sizes = [(buffer.numel, buffer.dtype.itemsize) for buffer in kernel.buffers]
            known = sum(n.value * size for n, size in sizes if isinstance(n, Int))
            moved = f"{known:,} bytes" if all(isinstance(n, Int) for n, _ in sizes) else f"over {known:,} bytes"
            print(f"  {kernel.name} x{launches[kernel.name]}: {moved}: {', '.join(kernel.origins)}", flush=True)

    def product(self, text: str) -> None:
        """One line a product of matrices that could be a kernel of ours: what it is, and why."""
        if self.options.debug >= 1:
            print(f"assay {self.name}: {text}", flush=True)

    def count(self, counts: Counts, kernels: int) -> None:
        """Adds one built graph to the totals."""
        _totals.nodes += counts.compute
        _totals.nodes_generated += counts.generated
        _totals.kernels += kernels
        _totals.fallbacks.update(counts.fallbacks)
        if self.options.debug >= 1:
            called = ", ".join(f"{name} {count}" for name, count in counts.fallbacks.items())
            text = f"assay {self.name}: {counts.generated} of {counts.compute} compute nodes in {kernels} kernels"
            print(text + (f"; called: {called}" if called else ""), flush=True)


def count_eager(reason: str, nodes: int) -> None:
    """A whole graph of so many nodes was given back to eager; said once for each reason."""
    _totals.eager_graphs += 1
    _totals.eager[reason] += nodes
    say_once(f"assay: a graph runs in eager: {reason}")


def count_cut(reason: str, nodes: int) -> None:
    """So many nodes were cut out of a graph and run in eager; said once for each reason."""
    _totals.cuts += 1
    _totals.eager[reason] += nodes
    say_once(f"assay: a part of a graph runs in eager: {reason}")


def count_piece() -> None:
    """What is compiled is a piece of a graph that was cut."""
    _totals.pieces += 1


def count_loop() -> None:
    """All steps of a loop are one call."""
    _totals.loops += 1


def count_stepwise(reason: str) -> None:
    """Each step of a loop is a call of its own; said once for each reason."""
    _totals.stepwise[reason] += 1
    say_once(f"assay: a loop runs step by step: {reason}")


def count_backward() -> None:
    """A whole backward was recorded and compiled."""
    _totals.backwards += 1


def count_eager_backward(reason: str) -> None:
    """A backward, or a part of one, runs in eager where it was to be compiled; said once for each reason."""
    _totals.eager_backwards[reason] += 1
    say_once(f"assay: a backward runs in eager: {reason}")


def count_restored() -> None:
    """A compile was made from what the cache had kept."""
    _totals.restored += 1


def count_tuned() -> None:
    """The tiles of a kernel were chosen by measuring."""
    _totals.tuned += 1


def count_failed_build(program: str, reason: str) -> None:
    """Triton failed on a program as it was wanted, and another form of it runs; said once for each reason."""
    _totals.failed_builds += 1
    say_once(f"assay: Triton fails on {program} {reason}; it is built with others")


def count_product(is_ours: bool) -> None:
    """A product of matrices was left to the library, or given to a kernel of ours."""
    _totals.products["tiles" if is_ours else "library"] += 1


def count_recorded() -> None:
    """A graph's launches were recorded as a CUDA graph."""
    _totals.recorded += 1


def count_replayed() -> None:
    """A call was a CUDA graph that was launched again."""
    _totals.replayed += 1


def count_apart() -> None:
    """A graph is to be recorded in memory of its own."""
    _totals.apart += 1


def count_unrecorded(reason: str, is_wanted: bool) -> None:
    """A graph that no CUDA graph may stand for; said once for each reason where the user has asked for them."""
    _totals.unrecorded[reason] += 1
    if is_wanted:
        say_once(f"assay: a graph is launched kernel by kernel: {reason}")


def count_uncached(reason: str) -> None:
    """A compile that no cache can answer."""
    _totals.uncached[reason] += 1
