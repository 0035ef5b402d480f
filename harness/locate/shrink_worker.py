"""The process that makes a failing case smaller: it records the graphs of the case, and shrinks the one that fails.

    python -m assay.harness.locate.shrink_worker REQUEST ANSWER

The request: `{"origin", "case", "mode", "size", "seed", "rung", "backend", "kind": [verdict, [field], error],
"limit_s"}`. The answer is a line a success, the smallest last: `{"source", "lines", "numbers", "is_text_alone", ...}`.
So a crash or the time limit loses nothing. The last line, `{"done": ..., "on_backend": ...}`, says whether the smallest
program also fails on the real backend.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.backends.registry import Backend
from assay.harness.calls.clone import copy_call
from assay.harness.discover import discover
from assay.harness.locate.graph_program import GraphProgram, Unprintable
from assay.harness.locate.runner import is_alike, is_failure
from assay.harness.observe.observation import one_step, set_mode
from assay.harness.outcome import Result
from assay.harness.processes.worker import answering
from assay.harness.protocol.acts import FEW
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, made_call, run_case
from assay.harness.search.generated import Kind, kind_of

Say = Callable[[dict[str, Any]], None]


def recorded(request: Mapping[str, Any]) -> list[tuple[fx.GraphModule, list[Any]]]:
    """The graphs that Dynamo makes of a step of the case, each with what it was first called with."""
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    call = copy_call(made_call(case, request["size"], request["seed"], "cpu"))
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def record(gm: fx.GraphModule, _: Sequence[object]) -> Callable[..., Any]:
        seen: list[Any] = []
        found.append((gm, seen))

        def run(*args: Any) -> Any:
            if not seen:
                seen.extend(_kept(arg) for arg in args)
            return gm.forward(*args)

        return run

    torch._dynamo.reset()
    set_mode(call, request["mode"])
    compiled = torch.compile(call.function, backend=record)
    one_step(call, compiled, request["mode"], request["seed"])
    return [(gm, seen) for gm, seen in found if seen or not gm.graph.find_nodes(op="placeholder")]


def _kept(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def tried(program: GraphProgram, mode: str, backend: str | Backend, is_quick: bool = True) -> Result | None:
    """The row of a program; None for one that is none. A run that is not quick sees more, and takes longer."""
    try:
        program.values()
        case = program.case("shrunk", mode)
    except Exception:  # a candidate that eager cannot run is no program
        return None
    return run_case(
        case, mode, backend, RunRequest(timed=False, protocol=FEW[mode] if is_quick else None, quick=is_quick)
    )


def shrink(request: Mapping[str, Any], say: Say) -> None:
    """Says every smaller program that fails, and at the end how the smallest does on the real backend."""
    verdict, fields, error = request["kind"]
    kind, end_s = Kind(verdict, frozenset(fields), error), time.monotonic() + request["limit_s"]

    def failed(program: GraphProgram, is_quick: bool, backend: str = request["rung"]) -> Result | None:
        row = tried(program, request["mode"], backend, is_quick)
        return row if row is not None and is_failure(row) and is_alike(kind_of(row), kind) else None

    for is_quick in (True, False):
        fails = functools.partial(failed, is_quick=is_quick)
        best, why = _first(request, fails)
        if best is not None:
            break
    if best is None:
        say({"done": True, "why": why})
        return
    say(told(*best))
    while (smaller := _smaller(best[0], fails, end_s, say)) is not None:
        best = smaller
    say({"done": True, "on_backend": fails(best[0], backend=request["backend"]) is not None})


def _first(
    request: Mapping[str, Any], failed: Callable[[GraphProgram], Result | None]
) -> tuple[tuple[GraphProgram, Result] | None, str]:
    """The first graph that fails by itself; or why none does."""
    why = "Dynamo makes no graph of it"
    for gm, inputs in recorded(request):
        try:
            program = GraphProgram.of(gm, inputs)
        except Unprintable as error:
            why = f"a graph has no text in torch alone: {error}"
            continue
        if (row := failed(program)) is not None:
            return (program, row), ""
        why = "no graph of it fails by itself: what fails is around the graphs, or between calls"
    return None, why


def _smaller(
    program: GraphProgram, failed: Callable[[GraphProgram], Result | None], end_s: float, say: Say
) -> tuple[GraphProgram, Result] | None:
    for candidate in program.simpler():
        if time.monotonic() > end_s:
            return None
        if (row := failed(candidate)) is not None:
            say(told(candidate, row))
            return candidate, row
    return None


def told(program: GraphProgram, row: Result) -> dict[str, Any]:
    """What the answer has of a program."""
    lines, numbers, _ = program.weight()
    operators = [line.text().partition(" = ")[2].partition("(")[0].rpartition(".")[2] for line in program.lines]
    return {
        "source": program.source(), "body": program.body(), "inputs": program.inputs_text(), "lines": lines,
        "numbers": numbers, "operators": operators, "is_text_alone": program.is_text_alone,
        "row": finite(dataclasses.asdict(row)),
    }  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(shrink)
