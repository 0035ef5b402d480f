"""Within the first rung that differs: which graph, forward or backward, which node, which fusion, which kernel.

Each is a number in the name of a backend (`switched,of=inductor,graphs=2`), and the smallest number with which the case
still fails is found by halving. Of forward and backward, each is tried with the other one of the rung below. So what is
found is two commands that differ by one step, of which the second fails.
"""

from __future__ import annotations

import difflib
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.harness.backends.halves import HALVES
from assay.harness.locate.ladder import Found
from assay.harness.locate.runner import Runner

GENERATED = ("generated", "recorded", "warm")
MOST_FUSIONS = 1 << 13
SHOWN_LINES = 60


@dataclass(frozen=True, slots=True)
class Place:
    """One answer: of a `what` (graph, half, node, fusion, kernel), number `count` of `of`, as the two backends show."""

    what: str
    count: int
    of: int
    text: str
    good: str
    bad: str

    @property
    def said(self) -> str:
        of = f" of {self.of}" if self.of else ""
        return f"{self.what} {self.count}{of}" + (f": {self.text.partition(chr(10))[0]}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Bisected:
    """What was found within the rung, the outermost first, and the two commands with the difference of their states."""

    found: Found
    places: tuple[Place, ...]
    good: str
    bad: str
    difference: str

    def commands(self, origin: str) -> tuple[str, str]:
        below = self.found.below
        mode = below.row.mode if below is not None and not self.places else ""
        return command(self.found, origin, self.good, mode), command(self.found, origin, self.bad)


def command(found: Found, origin: str, backend: str, mode: str = "") -> str:
    """How a user runs the case on a backend; in another mode than it was found in, where one is given. A case of a file
    is named after it."""
    named = f"{origin}::{found.case.rpartition('.')[2]}" if origin.endswith(".py") else found.case
    where = "" if found.device == "cpu" else f" --device {found.device}"
    return f"assay run {shlex.quote(named)} --mode {mode or found.mode} --backend {shlex.quote(backend)}{where}"


@dataclass(slots=True)
class Bisection:
    """The search within a rung."""

    runner: Runner
    found: Found
    say: Callable[[str], None] = lambda text: None

    def find(self) -> Bisected:
        good = self.found.below.rung.backend if self.found.below else "eager-none"
        bad = self.found.first.rung.backend
        places = tuple(self._places(bad))
        if places:
            good, bad = places[-1].good, places[-1].bad
        for place in places:
            self.say(place.said)
        return Bisected(self.found, places, good, bad, self._difference(good, bad, places))

    def _places(self, backend: str) -> Iterator[Place]:
        if self.found.first.rung.name in ("eager", "dynamo"):
            return
        of = backend.replace(",", ";")
        graph = self._graph(of)
        if graph is None:
            return
        yield graph
        if (half := self._half(graph)) is not None:
            yield half
        if (node := self._node(of, graph)) is not None:
            yield node
        if backend.partition(",")[0] == "assay" and self.found.first.rung.name in GENERATED:
            yield from self._generated(backend)

    def _graph(self, of: str) -> Place | None:
        """The graph that Dynamo gives, of several."""
        whole = self.runner.run(f"switched,of={of}", self.found.mode)
        if not whole.failures(self.found.kind) or not whole.graphs:
            return None
        names = [f"graphs={count}" for count in range(len(whole.graphs) + 1)]
        count = self._smallest(len(whole.graphs), lambda count: f"switched,of={of},graphs={count}")
        good, bad = (f"switched,of={of},{names[each]}" for each in (count - 1, count))
        return Place("graph", count, len(whole.graphs), f"{len(whole.graphs[count - 1])} nodes", good, bad)

    def _half(self, graph: Place) -> Place | None:
        """Forward or backward: which one fails while the other one is that of the rung below.

        None where there is nothing to tell apart. So it is, too, where both of the rung no longer fail when they are
        taken apart, or both of the rung below do.
        """
        if self.found.mode != "train" or self.found.below is None:
            return None
        below = self.found.below.rung.backend.replace("eager-none", "eager").replace(",", ";")
        named = {half: f"{graph.bad},below={below},half={half}" for half in HALVES}
        if not self._fails(named["both"]) or self._fails(named["neither"]):
            return None
        failing = [half for half in ("forward", "backward") if self._fails(named[half])]
        if not failing:
            return None
        text = " and ".join(failing) + (", each by itself" if len(failing) == 2 else "")
        return Place("half", HALVES.index(failing[0]) + 1, 2, text, named["neither"], named[failing[0]])

    def _node(self, of: str, graph: Place) -> Place | None:
        """The last node that has to be compiled for the case to fail; None where a part of a graph does not."""
        nodes = self.runner.run(graph.bad, self.found.mode).graphs[graph.count - 1]
        if not self._fails(f"{graph.bad},nodes={len(nodes)}"):
            return None
        count = self._smallest(len(nodes), lambda count: f"{graph.bad},nodes={count}")
        good, bad = (f"{graph.bad},nodes={each}" for each in (count - 1, count))
        return Place("node", count, len(nodes), nodes[count - 1], good, bad)

    def _generated(self, backend: str) -> Iterator[Place]:
        """Of our own generated code: the fusion, where there is one to blame, and the kernel."""
        bare = "assay,warm=False"
        if not self._fails(f"{bare},fusions=0") and self._fails(bare):
            count = self._smallest(MOST_FUSIONS, lambda count: f"{bare},fusions={count}")
            good, bad = (f"{bare},fusions={each}" for each in (count - 1, count))
            yield Place("fusion", count, 0, "", good, bad)
        kernels = self.runner.run("switched,of=assay,kernels=0", self.found.mode)
        if kernels.failures(self.found.kind) or not kernels.kernels:
            return
        if not self._fails(f"switched,of=assay,kernels={len(kernels.kernels)}"):
            return
        count = self._smallest(len(kernels.kernels), lambda count: f"switched,of=assay,kernels={count}")
        good, bad = (f"switched,of=assay,kernels={each}" for each in (count - 1, count))
        yield Place("kernel", count, len(kernels.kernels), kernels.kernels[count - 1], good, bad)

    def _smallest(self, most: int, named: Callable[[int], str]) -> int:
        """The smallest number with which the case fails, beside one with which it does not; `most` is known to fail."""
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fails(named(middle)) else (middle, high)
        return high

    def _fails(self, backend: str) -> bool:
        return bool(self.runner.run(backend, self.found.mode).failures(self.found.kind))

    def _difference(self, good: str, bad: str, places: Sequence[Place]) -> str:
        """What the step changed: the kernel's own text, or the last states of both compiles, compared."""
        if places and places[-1].what == "kernel":
            return places[-1].text
        if not (good.startswith("assay") and bad.startswith("assay")) and self.found.below is not None:
            good, bad = self.found.below.rung.backend, self.found.first.rung.backend
        if not (good.startswith("assay,") and bad.startswith("assay,")):
            return ""
        return state_difference(*(self._last_states(backend) for backend in (good, bad)))

    def _last_states(self, backend: str) -> list[str]:
        """The lines of the last state of each graph that a compile writes down."""
        with tempfile.TemporaryDirectory(prefix="assay-states-") as folder:
            self.runner.run(f"{backend},dump={folder}", self.found.mode)
            graphs = sorted(path for path in Path(folder).iterdir() if path.is_dir())
            states = [sorted(graph.glob("*.py")) for graph in graphs]
            return [line for each in states if each for line in each[-1].read_text().splitlines()]


def state_difference(good: Sequence[str], bad: Sequence[str]) -> str:
    """What is added and taken away from one state to the next, without what is the same around it."""
    lines = difflib.unified_diff(good, bad, "before", "after", lineterm="", n=1)
    return "\n".join(list(lines)[:SHOWN_LINES])
