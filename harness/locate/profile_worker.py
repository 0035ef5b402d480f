"""The process that profiles how errors grow along the graphs of a case.

    python -m assay.harness.locate.profile_worker REQUEST ANSWER

The request: `{"origin", "case", "mode", "size", "seed", "backend"}`. The answer is a line a node:
`{"graph", "node", "eager", "ours"}`. Both errors are against float64, as shares of the largest value of the node.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.backends.registry import resolve
from assay.harness.backends.switches import calls_of, described
from assay.harness.locate.shrinking.recorded_graphs import case_of, recorded
from assay.harness.processes.worker import Say, answering
from assay.reference.evaluate import evaluate

WORKER = "assay.harness.locate.profile_worker"
FACTOR, FLOOR = 8.0, 2.0**-22
"""A node leaves eager if its error is so many times eager's, or so many times the floor where eager's is less."""
LEAST = 1e-10
"""Errors below are not drawn: no value in single precision is as near to float64."""
WIDTH = 20


def profile(request: Mapping[str, Any], say: Say) -> None:
    """Says the errors of every node of every graph that is not in eager's own precision alone."""
    backend = resolve(request["backend"])
    for number, (gm, inputs) in enumerate(recorded(case_of(request), request), 1):
        given = [[_copied(value) for value in inputs] for _ in range(4)]
        whole, names = with_all_results(gm, nodes_that_run(gm, given.pop()))
        if not names:
            continue
        torch._dynamo.reset()
        with torch.no_grad(), backend.ambient():
            ours = backend.wrap(whole)(*given[0])
        with torch.no_grad():
            eager = whole(*given[1])
        truth = evaluate(whole, given[2], in_float64=True)
        for name, *values in zip(names, eager, ours, truth, strict=True):
            errors = [error_of(value, values[2]) for value in values[:2]]
            say({"graph": number, "node": name, "eager": errors[0], "ours": errors[1]})


class _Eager(fx.Interpreter):
    """Notes the names of the nodes that ran."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.ran: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.ran.append(n.name)
        return value


def nodes_that_run(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[str]:
    """The names of the nodes of a graph: all, or those before the one that raises in eager."""
    eager = _Eager(gm)
    with torch.no_grad(), contextlib.suppress(Exception):  # whatever the program raises
        eager.run(*inputs)
    return eager.ran


def with_all_results(gm: fx.GraphModule, ran: Sequence[str]) -> tuple[fx.GraphModule, list[str]]:
    """The graph of these nodes, with each floating tensor that it computes as a result; and what they are called."""
    graph = copy.deepcopy(gm.graph)
    for node in reversed([node for node in graph.nodes if node.name not in ran and node.op != "output"]):
        graph.output_node().args = ((),)
        graph.erase_node(node)
    made = fx.GraphModule(gm, graph)
    nodes = [node for node in calls_of(made) if _is_floating(node.meta.get("example_value"))]
    graph.output_node().args = (tuple(nodes),)
    made.recompile()
    return made, [described(node) for node in nodes]


def _is_floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def error_of(value: Tensor, truth: Tensor) -> float:
    """The largest error of the values that are finite in float64, as a share of the largest of them."""
    wide, right = value.double(), truth.double()
    finite = right.isfinite()
    if not finite.any():
        return 0.0
    size = float(right[finite].abs().max()) or 1.0
    found = (wide - right)[finite].abs()
    return float("inf") if not found.isfinite().all() else float(found.max()) / size


def first_that_leaves(errors: Sequence[Mapping[str, Any]], factor: float, floor: float) -> int | None:
    """The place of the first node whose error is `factor` times eager's, and above the floor."""
    for place, each in enumerate(errors):
        if known(each["ours"]) > factor * max(each["eager"] or 0.0, floor):
            return place
    return None


def known(error: float | None) -> float:
    """An error as a number: in an answer None stands for one that is not finite."""
    return math.inf if error is None else error


def bars(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """A bar a node on a logarithmic scale, from `LEAST` to the size of the values: eager's error, and what the backend
    adds."""
    pairs = [(_length(known(each["eager"])), _length(known(each["ours"]))) for each in errors]
    return ["░" * min(eager, ours) + "█" * (ours - eager) for eager, ours in pairs]


def _length(error: float) -> int:
    if error <= LEAST:
        return 0
    return min(WIDTH, math.ceil(WIDTH * (1 - math.log10(min(error, 1.0)) / math.log10(LEAST))))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(profile)
