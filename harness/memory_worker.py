"""One model at several memory budgets for `harness.memory_dial`: `python -m harness.memory_worker REQUEST ANSWER`.

The answer is one line a budget: {"budget", "ms", "gradient_error"} where `rounds` are asked for; {"budget",
"peak_bytes"} where none are. A peak is asked for alone: what others have left in the process's heap would count.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.measure import peak_bytes

MODEL = "suites.benchmarks.memory"
Step = Callable[[], None]


def compiled(model: nn.Module, backend: str, budget: float | None) -> Callable[[Tensor], Tensor]:
    """The loss of the model as one compiled function; in eager where there is no budget."""

    def loss(x: Tensor) -> Tensor:
        return model(x).square().mean()  # type: ignore[no-any-return]

    if budget is None:
        return loss
    options: dict[str, Any] = {"memory_budget": budget}
    return torch.compile(loss, backend=backend, options=options)


def gradients(model: nn.Module, loss: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Of one step from a known state of the generator."""
    torch.manual_seed(0)
    loss(x).backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    return [gradient for gradient in found if gradient is not None]


def worst(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference, over the largest element of its tensor; of gradients that are missing it is infinite."""
    if len(found) != len(expected):
        return float("inf")
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected, strict=True))


def step_of(model: nn.Module, loss: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    def step() -> None:
        loss(x).backward()
        model.zero_grad(set_to_none=True)

    return step


def timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main(request_path: str, answer_path: str) -> None:
    asked: dict[str, Any] = json.loads(Path(request_path).read_text())
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    model, x = importlib.import_module(MODEL).transformer(asked["is_small"])
    budgets: list[float | None] = asked["budgets"]
    losses = [compiled(model, asked["backend"], budget) for budget in budgets]
    steps = [step_of(model, loss, x) for loss in losses]
    with Path(answer_path).open("a") as answers:
        if not asked["rounds"]:
            for budget, step in zip(budgets, steps, strict=True):
                print(json.dumps({"budget": budget, "peak_bytes": peak_bytes(step)}), file=answers, flush=True)
            return
        expected = gradients(model, compiled(model, "eager", None), x)
        errors = [worst(gradients(model, loss, x), expected) for loss in losses]
        rounds = [[timed(step) for step in steps] for _ in range(asked["rounds"] + 1)][1:]
        times = [statistics.median(column) for column in zip(*rounds, strict=True)]
        for budget, spent, error in zip(budgets, times, errors, strict=True):
            row = {"budget": budget, "ms": spent * 1e3, "gradient_error": error}
            print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
