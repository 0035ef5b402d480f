"""Backwards of whole programs: compiled as a whole, in parts, and not at all.

    python -m assay.suites.benchmarks.whole_backward --json results.json
    python -m assay.suites.benchmarks.whole_backward --program segformer --against assay,inductor+compiled_autograd

Each program is measured with each backend in a process of its own, since the engine tells one compiler of backwards
alone what its nodes compute. Ratios are ours over the other's: below 1 is better for ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.harness.backends.registry import resolve
from assay.suites.zoo.sight import segformer

OURS = "assay+own_backward"
RIVALS = ("eager-none", "assay", "inductor", "inductor+compiled_autograd")
STEPS, WARM_UP = 40, 10

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


def tiny() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Four operators over eight elements: what a backward costs when there is nothing to compute."""
    x, w = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    return lambda x, w: ((x * w).sin() * x).sum(), (x, w), {}


class Broken(nn.Module):
    """Twelve layers with a graph break behind each second one."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)) for _ in range(12))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for index, block in enumerate(self.blocks):
            x = torch.tanh(x + block(x))
            if index % 2:
                torch._dynamo.graph_break()
        return x


def broken() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A model of six compiled parts."""
    return Broken(), (torch.randn(64, 128),), {}


def of_segformer() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A model of the zoo that Dynamo breaks in several places."""
    return segformer.make("small")


PROGRAMS: dict[str, Program] = {"tiny": tiny, "broken": broken, "segformer": of_segformer}


def _loss(result: Any) -> Tensor:
    leaves = pytree.tree_leaves(dict(result) if hasattr(result, "keys") else result)
    parts = [leaf.float().square().mean() for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    return torch.stack(parts).sum()


def measure(program: str, backend: str) -> dict[str, float]:
    """The seconds of the first backward, and the milliseconds of the median later one."""
    torch.manual_seed(0)
    function, args, kwargs = PROGRAMS[program]()
    chosen = resolve(backend.replace("+", ","))
    compiled, taken_s = chosen.wrap(function), []
    with chosen.ambient():
        for _ in range(STEPS):
            loss = _loss(compiled(*args, **kwargs))
            start = time.perf_counter()
            loss.backward()
            taken_s.append(time.perf_counter() - start)
    return {"first_call_s": taken_s[0], "backward_ms": statistics.median(taken_s[WARM_UP:]) * 1000}


def _apart(program: str, backend: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--program", program, "--backend", backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}  # type: ignore[dict-item]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def compare(program: str, rivals: tuple[str, ...]) -> dict[str, Any]:
    """Every backend's figures, and ours over each other's."""
    found = {backend: _apart(program, backend) for backend in (OURS, *rivals)}
    ours = found[OURS]
    ratios = {
        backend: {key: round(ours[key] / other[key], 3) for key in ours}
        for backend, other in found.items()
        if backend != OURS and "error" not in other and "error" not in ours
    }
    return {"program": program, "measured": found, "ours_over": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--backend")
    parser.add_argument("--against", default=",".join(RIVALS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.backend:
        print(json.dumps(measure(given.program, given.backend)))
        return
    chosen = (given.program,) if given.program else tuple(PROGRAMS)
    rows = [compare(program, tuple(given.against.split(","))) for program in chosen]
    if given.json:
        given.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
