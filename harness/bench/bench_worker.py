"""One measurement in a process of its own: `python -m assay.harness.bench.bench_worker REQUEST ANSWER`.

REQUEST is a JSON file with the fields of `Request`; ANSWER receives one JSON line as soon as each mode is measured,
so that a crash loses only what was under way.

    steady   {"mode", "verdict", "detail", "pairs": {against: Pair}}    alternating rounds
    cold     {"mode", "compile_s", "peak_bytes", "error"}    the first call, less Dynamo's own time; then peak memory
    warm     the same in seconds of the processors
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

from assay.harness import measure
from assay.harness.backends.precision import at_precision
from assay.harness.backends.registry import ahead_of_time, resolve
from assay.harness.bench.steps import Wrap, make_step
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.protocol.acts import FEW
from assay.harness.run import RunRequest, made_call, run_case

EAGER = "eager"
"""As what is timed against, the program without `torch.compile`; not Dynamo's backend of that name."""


AHEAD = "aot_function"
"""As what is timed against, torch's `aot_function`, beside ours: neither knows Dynamo, and graphs run as recorded."""
OVERHEAD = "overhead"
"""The tag of cases that show what a call costs: Dynamo's own share of it is told beside."""


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
    precision: str = "float32"


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours beside one other in one mode; all None but `error` where one did not run. `is_crash`: that was ours.

    `copy_share`: the time of copying as many bytes as the program must move, over ours; of memory-bound cases.
    `dynamo_ms`: the same under Dynamo with eager operators; of cases about overhead.
    """

    ms: float | None = None
    against_ms: float | None = None
    speed_ratio: float | None = None
    speed_spread: tuple[float, float] | None = None
    copy_share: float | None = None
    dynamo_ms: float | None = None
    error: str = ""
    is_crash: bool = False


def rival(name: str) -> str:
    """The backend's name for what is timed against."""
    return "eager-none" if name == EAGER else name


def find(request: Request, mode: str) -> Case:
    """The case that the request names, found again where it came from, at the request's precision."""
    found = next(case for case in discover((request.origin,)) if case.name == request.case)
    return at_precision(found, mode, request.precision)


def steady(request: Request, case: Case, mode: str) -> dict[str, Any]:
    """The verdict first; then, where the program ran at all, its times beside each other's."""
    result = judged(request, case, mode)
    fields = ", ".join(sorted({difference.field for difference in result.differences}))
    answer = {"mode": mode, "verdict": result.verdict, "detail": fields or result.detail.strip(), "pairs": {}}
    if result.verdict not in ("unsupported", "timeout", "crash"):
        answer["pairs"] = {name: dataclasses.asdict(pair(request, case, mode, name)) for name in request.against}
    return answer


def judged(request: Request, case: Case, mode: str) -> Result:
    """What the harness says of the case, over a few acts: `assay run` judges all of them, in several times the time
    that timing takes. What the harness itself trips over is a crash of that mode alone."""
    acts = None if case.numbers else FEW[mode]
    asked = RunRequest(size=request.size, seed=request.seed, device=request.device, timed=False, protocol=acts)
    try:
        return run_case(case, mode, request.backend, asked)
    except Exception as error:
        return Result(case.name, mode, request.backend, "crash", detail=f"in the harness: {said(error)}")


def pair(request: Request, case: Case, mode: str, against: str) -> Pair:
    """Ours and one other, both compiled in this process and timed in alternating rounds."""
    torch._dynamo.reset()
    gc.collect()
    steps: list[measure.Step] = []
    try:
        steps += [stepped(request, case, mode, wrap) for wrap in wraps_of(request.backend, against)]
        ours, theirs = steps
        rounds = measure.alternate(ours, theirs, rounds=request.rounds, device=request.device)
        share = copy_share(request, case, ours) if measure.MEMORY_BOUND in case.tags else None
        is_shown = OVERHEAD in case.tags and against != AHEAD
        dynamo_ms = median_under_dynamo(request, case, mode) if is_shown else None
    except Exception as error:
        return Pair(error=said(error), is_crash=any(map(raises, steps[:1])))
    return Pair(
        ms=rounds.ours_ms,
        against_ms=rounds.theirs_ms,
        speed_ratio=rounds.ratio,
        speed_spread=rounds.spread,
        copy_share=share,
        dynamo_ms=dynamo_ms,
    )


def raises(step: measure.Step) -> bool:
    """Whether a step raises when it is called once more."""
    return measure.CountedStep(step).raises_by(1)


def stepped(request: Request, case: Case, mode: str, wrap: Wrap) -> measure.Step:
    return make_step(case, mode, wrap, size=request.size, seed=request.seed, device=request.device)


def wraps_of(backend: str, against: str) -> tuple[Wrap, Wrap]:
    """Ours and the other; against `aot_function` it is ours too that stands in the backend's place."""
    if against == AHEAD:
        return ahead_of_time("assay.compiler.entry.aot"), ahead_of_time("torch._functorch.aot_autograd")
    return resolve(backend).wrap, resolve(rival(against)).wrap


def median_under_dynamo(request: Request, case: Case, mode: str) -> float:
    step = stepped(request, case, mode, resolve("eager").wrap)
    return measure.median_ms(step, rounds=request.rounds, device=request.device)


def copy_share(request: Request, case: Case, step: measure.Step) -> float:
    """The step beside a copy of as much memory as it must move, in alternating rounds of this process."""
    call = made_call(case, request.size, request.seed, request.device)
    copy = measure.copy_step(measure.moved_bytes(call.args, call.kwargs, step()), request.device)
    return measure.alternate(step, copy, rounds=request.rounds, device=request.device).ratio


def cold(request: Request, case: Case, mode: str) -> dict[str, Any]:
    """Cold compile time. A tiny program goes first and pays for importing the backend, which no program owns."""
    wraps = {"eager": resolve("eager").wrap, request.backend: resolve(request.backend).wrap}
    made: list[measure.Step] = []

    def step_under(chosen: str | Callable[..., object]) -> measure.Step:
        wrap = wraps[str(chosen)]
        made.append(make_step(case, mode, wrap, size=request.size, seed=request.seed, device=request.device))
        return made[-1]

    try:
        warm_up(wraps[request.backend], request.device)
        clock = measure.cpu_s if request.kind == "warm" else None
        measured = measure.cold_compile(step_under, request.backend, request.device, clock)
        peak = measure.peak_bytes(made[-1], request.device)
    except Exception as error:
        return {"mode": mode, "compile_s": None, "peak_bytes": None, "error": said(error)}
    return {"mode": mode, "compile_s": measured.compile_s, "peak_bytes": peak, "error": ""}


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
    measured = {"steady": steady, "cold": cold, "warm": cold}[request.kind]
    with Path(answer_path).open("a") as answers:
        for mode in request.modes:
            print(json.dumps(measured(request, find(request, mode), mode)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
