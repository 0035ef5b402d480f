"""What of a program ran in eager for the backend's own reasons, whatever its values: the verdict `fell-back`.

Our own compiler counts it in its journal. Any other backend is watched as Dynamo calls it, and a graph ran in eager in
three cases:

- The backend returned that graph itself.
- The backend raised, and Dynamo went on without it.
- Dynamo gave the backend no graph of the program at all, though it gives one to a backend that does nothing.

Dynamo's graph breaks are Dynamo's own. A backend that is there to run operators by ATen says so: its callable has a
true attribute `runs_in_eager`.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch._dynamo
from torch import fx
from torch._dynamo.utils import counters

from assay.compiler.fallback import nodes_of
from assay.harness.calls.clone import Call
from assay.harness.case import Case
from assay.harness.observe.observation import Observation, one_step, set_mode

Compile = Callable[..., Any]
SHOWN = 160
"""Characters of a reason that a row shows."""
LEFT_BY_DYNAMO = "Dynamo leaves all of it to eager"


@dataclass(slots=True)
class Watched:
    """What a backend did with the graphs that Dynamo gave it. `nodes` is how many nodes they have, `eager` those of
    graphs that ran in eager, `raised` those of graphs for which it raised, both by the reason."""

    nodes: int = 0
    eager: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)


class Counted(Protocol):
    """What was counted over a run, as `backends.Statistics` has it."""

    @property
    def eager(self) -> Mapping[str, int]: ...

    @property
    def raised(self) -> Mapping[str, int]: ...

    @property
    def nodes(self) -> int | None: ...

    @property
    def given(self) -> int: ...


_watched: dict[str, Watched] = {}


def watched(name: str) -> Watched:
    """What was seen so far of the backend of that name."""
    return _watched.setdefault(name, Watched())


def watching(name: str, backend: Compile, *, may_give_back: bool) -> Compile:
    """The backend, watched. One that `may_give_back` the graph as it is does so by design."""

    @functools.wraps(backend)
    def compile_graph(graph: fx.GraphModule, example_inputs: Sequence[object], **kwargs: Any) -> Any:
        seen, nodes = watched(name), nodes_of(graph)
        seen.nodes += nodes
        try:
            run = backend(graph, example_inputs, **kwargs)
        except torch._dynamo.exc.RestartAnalysis:
            seen.nodes -= nodes
            raise
        except Exception as error:
            seen.raised[f"the backend raised {type(error).__name__}: {_first_line(error)}"] += nodes
            raise
        if not may_give_back and is_graph_itself(run, graph):
            seen.eager["the backend returned the graph that it was given"] += nodes
        return run

    return compile_graph


def is_graph_itself(run: object, graph: fx.GraphModule) -> bool:
    """Whether what a backend returned is the graph module, or a method of it."""
    return run is graph or getattr(run, "__self__", None) is graph


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class InEager:
    """What of a program ran in eager: `nodes_by_reason` out of `nodes`, where the number is known. `note` is what a row
    says of Dynamo's own part; `is_given_nothing`: the backend was given no graph."""

    nodes_by_reason: dict[str, int] = field(default_factory=dict)
    nodes: int | None = None
    note: str = ""
    is_given_nothing: bool = False

    def judged(self, verdict: str, detail: str) -> tuple[str, str]:
        """The verdict and its detail; `fell-back` in the place of `same` where the backend gave something back."""
        said = [self.note, detail]
        if self.nodes_by_reason and verdict == "same":
            verdict, said = "fell-back", [self._told(), detail]
        return verdict, "; ".join(filter(None, said))

    def _told(self) -> str:
        """The share of the nodes that ran in eager, and the reasons, those of most nodes first."""
        count = sum(self.nodes_by_reason.values())
        of = f"{count} of {self.nodes} nodes ({count / self.nodes:.0%})" if self.nodes else f"{count} nodes"
        most = sorted(self.nodes_by_reason, key=lambda reason: -self.nodes_by_reason[reason])
        return f"{of} ran in eager: " + "; ".join(" ".join(reason.split())[:SHOWN] for reason in most)


def seen(counted: Counted, ours: Sequence[Observation]) -> InEager:
    """What ran in eager by what was counted. A program that raised as eager did at each step, or at each that goes
    back, gives nothing back."""
    backwards = [step for step in ours if "backward" in step.act]
    if all(step.error is not None for step in backwards or ours):
        return InEager()
    is_swallowed = all(step.error is None or step.is_meant_to_raise for step in ours)
    reasons = Counter(counted.eager) + Counter(counted.raised if is_swallowed else {})
    nothing = not counted.given and not counters["stats"]["unique_graphs"]
    return InEager(dict(reasons), counted.nodes or counted.given, is_given_nothing=nothing)


def without_graphs(case: Case, call: Call, mode: str, seed: int) -> InEager:
    """What a backend that was given no graph left to eager. The call's objects are used."""
    nodes = nodes_for_another(case, call, mode, seed)
    if not nodes:
        return InEager(note=LEFT_BY_DYNAMO)
    return InEager({"Dynamo gave the backend no graph, and gives another one some": nodes}, nodes)


def nodes_for_another(case: Case, call: Call, mode: str, seed: int) -> int:
    """The nodes that Dynamo gives a backend that does nothing, of the same call."""
    torch._dynamo.reset()
    given: list[int] = []

    def count(graph: fx.GraphModule, _: Sequence[object]) -> Callable[..., Any]:
        given.append(nodes_of(graph))
        return graph.forward

    compiled = torch.compile(call.function, backend=count)
    function = compiled if case.scenario is None else functools.partial(case.scenario, compiled)
    set_mode(call, mode)
    with contextlib.suppress(Exception):  # it has been compiled by then, or never is
        one_step(call, function, mode, seed)
    return sum(given)
