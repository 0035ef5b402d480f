"""One case and its memory, in a process of its own:

    python -m assay.harness.bench.memory.memory_worker REQUEST ANSWER

times    one line a budget: {"budget", "ms", "gradient_error"}, in alternating rounds
peak     {"budget", "peak_bytes"}; asked for alone: what others have left in the process's heap would count
live     the fields of `live_memory.Memory`
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.harness.backends.registry import resolve
from assay.harness.bench.memory import live_memory
from assay.harness.bench.steps import Wrap, training_step
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.measure import peak_bytes
from assay.harness.observe.observation import set_mode
from assay.harness.run import made_call

Step = Callable[[], list[Tensor | None]]
LEAST_SCALE = 1e-4
"""Of the largest element of all gradients: those of a smaller scale are nothing but rounding, and are held to it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure; a budget of None is eager. `live` has use for neither budgets nor rounds."""

    kind: str
    origin: str
    case: str
    size: str
    seed: int
    backend: str
    budgets: tuple[float | None, ...] = ()
    rounds: int = 0


def find(request: Request) -> Case:
    """The case that the request names, found again where it came from."""
    return next(case for case in discover((request.origin,)) if case.name == request.case)


def wrap_of(backend: str, budget: float | None) -> Wrap:
    return resolve("eager-none" if budget is None else f"{backend},memory_budget={budget}").wrap


def gradients(step: Step) -> list[Tensor]:
    """Of one step from a known state of the generator."""
    torch.manual_seed(0)
    return [gradient for gradient in step() if gradient is not None]


def worst(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference, over the largest element of its tensor; of gradients that are missing it is infinite."""
    if len(found) != len(expected):
        return float("inf")
    scales = [gradient.abs().max().item() for gradient in expected if gradient.numel()]
    least = max(LEAST_SCALE * max(scales, default=0.0), torch.finfo(torch.float32).tiny)
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.numel()]
    return max((a - b).abs().max().item() / max(b.abs().max().item(), least) for a, b in pairs)


def timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def times(request: Request) -> Iterator[dict[str, Any]]:
    *steps, eager = steps_of(request, (*request.budgets, None))
    expected = gradients(eager)
    errors = [worst(gradients(step), expected) for step in steps]
    rounds = [[timed(step) for step in steps] for _ in range(request.rounds + 1)][1:]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    for budget, spent, error in zip(request.budgets, medians, errors, strict=True):
        yield {"budget": budget, "ms": spent * 1e3, "gradient_error": error}


def peak(request: Request) -> Iterator[dict[str, Any]]:
    for budget, step in zip(request.budgets, steps_of(request, request.budgets), strict=True):
        yield {"budget": budget, "peak_bytes": peak_bytes(step)}


def live(request: Request) -> Iterator[dict[str, Any]]:
    yield dataclasses.asdict(live_memory.measure(find(request), request.backend, request.size, request.seed))


def steps_of(request: Request, budgets: Sequence[float | None]) -> list[Step]:
    """A step for each budget, all of them over the same weights."""
    call = made_call(find(request), request.size, request.seed, "cpu")
    set_mode(call, "train")
    return [training_step(call, wrap_of(request.backend, budget), request.seed) for budget in budgets]


def main(request_path: str, answer_path: str) -> None:
    asked: dict[str, Any] = json.loads(Path(request_path).read_text())
    request = Request(**{**asked, "budgets": tuple(asked["budgets"])})
    torch._dynamo.config.recompile_limit = 64
    measured = {"times": times, "peak": peak, "live": live}[request.kind]
    with Path(answer_path).open("a") as answers:
        for line in measured(request):
            print(json.dumps(line), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
