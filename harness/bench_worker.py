"""One measurement in a process of its own: `python -m harness.bench_worker REQUEST ANSWER`.

REQUEST is a JSON file with the fields of `Request`; ANSWER receives one JSON line as soon as each mode is measured,
so that a crash loses only what was under way.

    steady   {"mode", "verdict", "detail", "pairs": {against: Pair}}    alternating rounds, peak memory
    cold     {"mode", "compile_s", "error"}                             the first call, less Dynamo's own time
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness import measure
from harness.backends import resolve
from harness.case import Case
from harness.discover import discover
from harness.outcome import Result
from harness.run import run_case
from harness.steps import Wrap, make_step

EAGER = "eager"
"""As what is timed against, the program without `torch.compile`; not Dynamo's backend of that name."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure. `cold` has no use for `against` and `rounds`."""

    kind: str
    origin: str
    case: str
    modes: tuple[str, ...]
    backend: str
    against: tuple[str, ...]
    size: str
    seed: int
    device: str
    rounds: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours beside one other in one mode; all None but `error` where the other did not run."""

    ms: float | None = None
    against_ms: float | None = None
    speed_ratio: float | None = None
    speed_spread: tuple[float, float] | None = None
    memory_ratio: float | None = None
    error: str = ""


def rival_wrap(name: str) -> Wrap:
    return (lambda function: function) if name == EAGER else resolve(name).wrap


def find(request: Request) -> Case:
    """The case that the request names, found again where it came from."""
    return next(case for case in discover((request.origin,)) if case.name == request.case)


def steady(request: Request, case: Case, mode: str) -> dict[str, Any]:
    """The verdict first; then, where the program ran at all, its times beside each other's."""
    result = judged(request, case, mode)
    fields = ", ".join(sorted({difference.field for difference in result.differences}))
    answer = {"mode": mode, "verdict": result.verdict, "detail": fields or result.detail.strip(), "pairs": {}}
    if result.verdict not in ("unsupported", "timeout", "crash"):
        answer["pairs"] = {name: dataclasses.asdict(pair(request, case, mode, name)) for name in request.against}
    return answer


def judged(request: Request, case: Case, mode: str) -> Result:
    """What the harness says of the case. What the harness itself trips over is a crash of that mode alone."""
    try:
        return run_case(
            case, mode, request.backend, size=request.size, seed=request.seed, device=request.device, timed=False
        )
    except Exception as error:
        return Result(case.name, mode, request.backend, "crash", detail=f"in the harness: {said(error)}")


def pair(request: Request, case: Case, mode: str, against: str) -> Pair:
    """Ours and one other, both compiled in this process and timed in alternating rounds."""
    torch._dynamo.reset()
    gc.collect()
    try:
        ours, theirs = (
            make_step(case, mode, wrap, size=request.size, seed=request.seed, device=request.device)
            for wrap in (resolve(request.backend).wrap, rival_wrap(against))
        )
        rounds = measure.alternate(ours, theirs, rounds=request.rounds, device=request.device)
        peaks = [measure.peak_bytes(step, request.device) for step in (ours, theirs)]
    except Exception as error:
        return Pair(error=said(error))
    return Pair(
        ms=rounds.ours_ms,
        against_ms=rounds.theirs_ms,
        speed_ratio=rounds.ratio,
        speed_spread=rounds.spread,
        memory_ratio=measure.memory_ratio(theirs=peaks[1], ours=peaks[0]),
    )


def cold(request: Request, case: Case, mode: str) -> dict[str, Any]:
    """Cold compile time. A tiny program goes first and pays for importing the backend, which no program owns."""
    backend = resolve(request.backend)

    def step_under(chosen: str | Callable[..., object]) -> measure.Step:
        wrap = backend.wrap if chosen == request.backend else resolve("eager").wrap
        return make_step(case, mode, wrap, size=request.size, seed=request.seed, device=request.device)

    try:
        warm_up(backend.wrap, request.device)
        measured = measure.cold_compile(step_under, request.backend, request.device)
    except Exception as error:
        return {"mode": mode, "compile_s": None, "error": said(error)}
    return {"mode": mode, "compile_s": measured.compile_s, "error": ""}


def warm_up(wrap: Wrap, device: str) -> None:
    """Compiles `x * 2 + 1`, forward and backward."""
    x = torch.ones(8, device=device, requires_grad=True)
    wrap(lambda value: (value * 2 + 1).sum())(x).backward()


def said(error: BaseException) -> str:
    """The error's class and the first line of its message."""
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def read_request(path: Path) -> Request:
    fields: dict[str, Any] = json.loads(path.read_text())
    fields["modes"], fields["against"] = tuple(fields["modes"]), tuple(fields["against"])
    return Request(**fields)


def main(request_path: str, answer_path: str) -> None:
    request = read_request(Path(request_path))
    measured = {"steady": steady, "cold": cold}[request.kind]
    case = find(request)
    with Path(answer_path).open("a") as answers:
        for mode in request.modes:
            print(json.dumps(measured(request, case, mode)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
