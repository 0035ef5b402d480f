"""An optimizer's step over a model, ours beside Inductor's: `python -m assay.suites.gpu.optimizers adamw sgd`.

    least = bytes that must move / the rate at which the device copies

`weights` are those of a transformer of 12 layers (BERT's, 110 million numbers), which memory bounds; `biases` are its
parameters of one dimension alone, where a step is its launches and nothing else. What is compared before any time is
taken: the parameters after two steps, to eager's in float32.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.harness.backends.registry import resolve
from assay.harness.measure import Step, alternate, median_ms
from assay.suites.gpu.bench import copy_rate

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], int]] = {
    "sgd": (lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9), 5),
    "adamw": (lambda params: torch.optim.AdamW(params, lr=1e-3), 7),
}
"""How each is made, and how many tensors of a parameter's size a step reads and writes."""
LAYERS, WIDTH, INNER, WORDS = 12, 768, 3072, 30522
SAMPLE_S = 0.05
TOLERANCE = 1e-6


def shapes(only_biases: bool) -> Iterator[tuple[int, ...]]:
    """The shapes of the parameters, as many as there are."""
    yield from () if only_biases else [(WORDS, WIDTH), (512, WIDTH), (2, WIDTH)]
    for _ in range(LAYERS):
        yield from [] if only_biases else [*[(WIDTH, WIDTH)] * 4, (INNER, WIDTH), (WIDTH, INNER)]
        yield from [*[(WIDTH,)] * 9, (INNER,)]


def parameters(only_biases: bool, device: str) -> list[torch.nn.Parameter]:
    generator = torch.Generator(device).manual_seed(0)
    found = []
    for shape in shapes(only_biases):
        made = torch.nn.Parameter(torch.randn(shape, device=device, generator=generator))
        made.grad = torch.randn(shape, device=device, generator=generator)
        found.append(made)
    return found


def step_of(name: str, only_biases: bool, backend: str, device: str) -> tuple[Step, list[torch.nn.Parameter]]:
    """A step of an optimizer, compiled, that has run twice, and its parameters."""
    torch._dynamo.reset()
    params = parameters(only_biases, device)
    step = resolve(backend).wrap(OPTIMIZERS[name][0](params).step)
    for _ in range(2):
        step()
    return step, params


def measured(name: str, only_biases: bool, given: argparse.Namespace, rate: float | None) -> dict[str, Any]:
    """The row of an optimizer."""
    ours, found = step_of(name, only_biases, given.backend, given.device)
    theirs, _ = step_of(name, only_biases, given.against, given.device)
    eager, expected = step_of(name, only_biases, "eager-none", given.device)
    pairs = zip(found, expected, strict=True)
    worst = max(float((a - b).detach().abs().max()) for a, b in pairs)
    if worst > TOLERANCE:
        raise AssertionError(f"{name}: a parameter is {worst} from eager's")
    rounds = alternate(ours, theirs, rounds=given.rounds, device=given.device, sample_s=SAMPLE_S)
    moved = OPTIMIZERS[name][1] * sum(4 * p.numel() for p in expected)
    row: dict[str, Any] = {"optimizer": name, "parameters": "biases" if only_biases else "weights"}
    row |= {"ms": rounds.ours_ms, "against_ms": rounds.theirs_ms}
    row |= {"speed_ratio": rounds.ratio, "speed_spread": rounds.spread}
    row |= {"eager_ms": median_ms(eager, rounds=given.rounds, device=given.device, sample_s=SAMPLE_S), "worst": worst}
    return row | {"least_ms": None if rate is None else 1e3 * moved / rate}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.optimizers")
    parser.add_argument("names", nargs="*", default=list(OPTIMIZERS), help=", ".join(OPTIMIZERS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--backend", default="assay")
    parser.add_argument("--against", default="inductor")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only-biases", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rate = copy_rate() if given.device == "cuda" else None
    rows = []
    for only_biases in (True,) if given.only_biases else (True, False):
        for name in given.names:
            rows.append(measured(name, only_biases, given, rate))
            print(rows[-1], flush=True)
    if given.json is not None:
        settings = {name: str(value) for name, value in vars(given).items()}
        text = json.dumps({"torch": torch.__version__, "settings": settings, "rows": rows}, indent=1)
        given.json.write_text(text)


if __name__ == "__main__":
    main()
