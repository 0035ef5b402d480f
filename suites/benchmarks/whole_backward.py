"""Backwards of whole programs: compiled as a whole, in parts, and not at all.

    python -m assay.suites.benchmarks.whole_backward --json results.json
    python -m assay.suites.benchmarks.whole_backward --program segformer --against assay,inductor+compiled_autograd
    python -m assay.suites.benchmarks.whole_backward --growth --json growth.json

Each program is measured with each backend in a process of its own, since the engine tells one compiler of backwards
alone what its nodes compute. Ratios are ours over the other's: below 1 is better for ours.

`--growth` measures the first backward of chains of 1,000 to 10,000 nodes, in seconds of the processor, which no other
process lengthens. `capture_s` is the recording alone: the engine's calls, and their formulas traced to one graph.
`first_call_s` is all until the gradients are there, but for the C++ compiler, which is a process of its own.
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
from unittest import mock

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import assay
from assay.compiler.assembly import backward_stretches
from assay.compiler.passes.runner import optimize
from assay.harness.backends.registry import resolve
from assay.harness.bench.compile_time.scaling import exponent_of
from assay.suites.zoo.sight import segformer

OURS = "assay+own_backward"
RIVALS = ("eager-none", "assay", "inductor", "inductor+compiled_autograd")
STEPS, WARM_UP = 40, 10
SIZES, WARM_NODES = (1000, 2500, 5000, 10000), 12
TIMES = ("capture_s", "first_call_s")

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
    return _measured("--program", program, "--backend", backend)


def _measured(*options: str) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, *options]
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


def chain(nodes: int) -> Tensor:
    """What as many nodes of autograd lead to, by a number of its own at each third: no two parts are alike."""
    x = value = torch.randn(64, 64, requires_grad=True)
    functions = (torch.sin, torch.tanh, torch.sigmoid, torch.cos)
    for step in range(nodes // 3):
        value = functions[step % 4](value * (1.0 + step / nodes) + x)
    return value.sum()


def first_call(nodes: int) -> dict[str, float]:
    """The processor's seconds of the first backward of a chain, and of its recording alone."""
    recorded: list[float] = []

    def noting(*given: Any) -> Any:
        recorded.append(time.process_time())
        return optimize(*given)

    with assay.compiled_autograd():
        chain(WARM_NODES).backward()
        loss = chain(nodes)
        with mock.patch.object(backward_stretches, "optimize", noting):
            start = time.process_time()
            loss.backward()
            end = time.process_time()
    return {"nodes": nodes, "capture_s": recorded[0] - start, "first_call_s": end - start}


def growth() -> dict[str, Any]:
    """The chains of all sizes, and the exponents: 1 is linear."""
    rows = [_measured("--nodes", str(nodes)) for nodes in SIZES]
    exponents = {key: exponent_of([(int(row["nodes"]), row[key]) for row in rows]) for key in TIMES}
    return {"torch": torch.__version__, "rows": rows, "exponents": exponents}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--backend")
    parser.add_argument("--against", default=",".join(RIVALS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--nodes", type=int)
    given = parser.parse_args()
    if given.backend:
        print(json.dumps(measure(given.program, given.backend)))
    elif given.nodes:
        print(json.dumps(first_call(given.nodes)))
    elif given.growth:
        _told(growth(), given.json)
    else:
        _compare_all(given)


def _told(found: dict[str, Any], path: Path | None) -> None:
    text = json.dumps(found, indent=1)
    print(text)
    if path:
        path.write_text(text + "\n")


def _compare_all(given: argparse.Namespace) -> None:
    chosen = (given.program,) if given.program else tuple(PROGRAMS)
    rows = [compare(program, tuple(given.against.split(","))) for program in chosen]
    _told({"torch": torch.__version__, "rows": rows}, given.json)


if __name__ == "__main__":
    main()
