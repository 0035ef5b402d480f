"""One figure of `language.py` in a process of its own: `python -m assay.harness.bench.language_worker REQUEST ANSWER`.

The answer is one line: the fields of a `Row` that are not the figure's own, or of a first call {"first_s", "nodes",
"generated", "eager"}.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.compiler import journal
from assay.harness import measure
from assay.harness.backends.registry import resolve
from assay.harness.bench.bench_worker import said, warm_up
from assay.harness.bench.language import Figure, Make, Request, Subject, figures

RECORDED = {"inductor": "triton.cudagraphs=True"}
"""How a backend is asked for CUDA graphs; ours by `cudagraphs`."""
SAMPLE_S = 0.1
RECOMPILES = 64
"""Dynamo's own limit is not what a figure is about."""


def wrapped(subject: Subject, backend: str) -> Callable[..., Any]:
    """The subject's function under a backend; as it is under `eager-none`."""
    if subject.is_recorded and backend != "eager-none":
        backend += "," + RECORDED.get(backend.split(",")[0], "cudagraphs=True")
    return resolve(backend).wrap(subject.function)


def step_of(subject: Subject, backend: str) -> measure.Step:
    """A step that makes the subject's next call."""
    function, calls = wrapped(subject, backend), itertools.cycle(subject.calls)

    def infer() -> Any:
        with torch.no_grad():
            return function(*next(calls))

    def train() -> Any:
        result = function(*next(calls))
        result.sum().backward()
        return result

    return train if subject.trains else infer


def hold_to_eager(make: Make, backend: str, device: str) -> None:
    """Raises: AssertionError where a result of the first calls is farther from eager's, as a share of its norm, than
    the rounding of its dtype lets a model be."""
    torch.manual_seed(0)
    eager = step_of(make(device), "eager-none")
    torch.manual_seed(0)
    subject = make(device)
    compiled = step_of(subject, backend)
    for _ in range(max(len(subject.calls), 3)):
        for theirs, ours in zip(*(map(tensors, (eager(), compiled()))), strict=True):
            most = 0.03 if theirs.itemsize < 4 else 1e-4
            away = float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp_min(1e-30))
            assert away <= most, f"a result is {away:.2g} of its norm from eager's, and {most} is the most"


def tensors(value: object) -> list[Tensor]:
    """Copies of the tensors of a result, of its plain memory."""
    return [leaf.detach().clone() for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def compared(figure: Figure, request: Request) -> dict[str, Any]:
    """The figure, by steps that alternate."""
    hold_to_eager(figure.make, request.backend, request.device)
    torch._dynamo.reset()
    journal.reset()
    ours = made(figure.make, request.backend, request.device)
    ours()
    counted = counts()
    if figure.simpler is None:
        return beside(ours, made(figure.make, request.against, request.device), request) | counted
    found = over(figure, ours, made(figure.simpler, request.backend, request.device), request)
    others = {"rival": request.against} | ({"dynamo": "eager"} if figure.comparison == "an_input" else {})
    for name, backend in others.items():
        with contextlib.suppress(Exception):  # another that cannot run the program has no figure, and ours has
            torch._dynamo.reset()
            whole, simpler = (made(make, backend, request.device) for make in (figure.make, figure.simpler))
            found[name] = over(figure, whole, simpler, request)["value"]
    return found | counted


def made(make: Make, backend: str, device: str) -> measure.Step:
    torch.manual_seed(0)
    return step_of(make(device), backend)


def beside(ours: measure.Step, theirs: measure.Step, request: Request) -> dict[str, Any]:
    """The other's time over ours."""
    rounds = measure.alternate(ours, theirs, rounds=request.rounds, device=request.device, sample_s=SAMPLE_S)
    return {"value": rounds.ratio, "spread": rounds.spread, "ms": rounds.ours_ms, "other_ms": rounds.theirs_ms}


def over(figure: Figure, whole: measure.Step, simpler: measure.Step, request: Request) -> dict[str, Any]:
    """The time over that of the simpler program, or what each input adds to it."""
    rounds = measure.alternate(whole, simpler, rounds=request.rounds, device=request.device, sample_s=SAMPLE_S)
    times = {"ms": rounds.ours_ms, "other_ms": rounds.theirs_ms}
    if figure.comparison == "an_input":
        added = [(a - b) * 1e3 / figure.inputs for a, b in zip(rounds.ours, rounds.theirs, strict=True)]
        middle = (rounds.ours_ms - rounds.theirs_ms) * 1e3 / figure.inputs
        return times | {"value": middle, "spread": measure.quartiles(added)}
    low, high = rounds.spread
    return times | {"value": 1 / rounds.ratio, "spread": (1 / high, 1 / low)}


def first_call(figure: Figure, request: Request) -> dict[str, Any]:
    """Seconds of one first call, Dynamo's included. A tiny program goes first and pays for imports."""
    make = figure.make if request.side == "whole" else figure.simpler
    assert make is not None, "a figure of first calls has a simpler program"
    warm_up(resolve(request.backend).wrap, request.device)
    torch._dynamo.reset()
    journal.reset()
    step = made(make, request.backend, request.device)
    return {"first_s": measure.first_call_s(step, request.device)} | counts()


def counts() -> dict[str, Any]:
    totals: dict[str, Any] = journal.totals()
    eager = sum(totals["eager"].values())
    return {"nodes": totals["nodes"] + eager, "generated": totals["nodes_generated"], "eager": eager}


def answer(request: Request) -> dict[str, Any]:
    figure = figures()[request.figure]
    try:
        with torch._dynamo.config.patch(recompile_limit=RECOMPILES, suppress_errors=False, **figure.config):
            return first_call(figure, request) if request.side else compared(figure, request)
    except Exception as error:
        return {"error": said(error)}


def main(request_path: str, answer_path: str) -> None:
    request = Request(**json.loads(Path(request_path).read_text()))
    with Path(answer_path).open("a") as answers:
        print(json.dumps(answer(request)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
