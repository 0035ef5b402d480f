"""Backwards of whole programs: `assay bench compiled_autograd`, and how the time of recording grows.

    python -m assay.suites.benchmarks.whole_backward --growth --json growth.json

Each program is measured under each way in a process of its own, since the engine tells one compiler of backwards alone
what its nodes compute. Times on a CPU are the processor's, which no other process lengthens.

`--growth` measures the first backward of chains of 1,000 to 10,000 nodes. `capture_s` is the recording alone: the
engine's calls, and their formulas traced to one graph. `first_call_s` is all until the gradients are there, but for the
C++ compiler, which is a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import assay
from assay.compiler.assembly import backward_stretches
from assay.compiler.passes.runner import optimize
from assay.harness.backends.registry import resolve
from assay.harness.bench.compile_time.scaling import exponent_of
from assay.harness.bench.compiled_autograd import Figure
from assay.harness.measure import peak_bytes
from assay.suites.zoo.sight import segformer

OURS = "assay,own_backward"
PARTS = "assay"
TORCHS = "inductor,compiled_autograd"
EAGER = "eager-none"
RECORDED, UNRECORDED = (f"{OURS},cudagraphs={asked}" for asked in (True, False))
STEPS, WARM_UP = 60, 10
FACTOR = 4.0
"""How many times eager's own distance from float64 a gradient may be off, as by the rule of `docs/verdicts.md`."""
SIZES, WARM_NODES = (1000, 2500, 5000, 10000), 12
TIMES = ("capture_s", "first_call_s")
BROKEN = ("segformer", "broken", "narrow")
BREAKING = ("SegformerLayer", "SegformerOverlapPatchEmbeddings")
LEAST_PARTS = 6
"""How many compiled parts a program of `BROKEN` has at least: the bars are for five graph breaks or more."""

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


def tiny() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Four operators over eight elements: what a backward costs when there is nothing to compute."""
    x, w = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    return lambda x, w: ((x * w).sin() * x).sum(), (x, w), {}


class Pair(nn.Module):
    """Two layers with a graph break behind them. It is a frame of its own: Dynamo runs a frame with a break in a loop
    in eager, and compiles what the loop calls."""

    def __init__(self, width: int) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(2))
        self.first, self.second = blocks

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x + self.first(x))
        x = torch.tanh(x + self.second(x))
        torch._dynamo.graph_break()
        return x


class Broken(nn.Module):
    """Pairs of layers, each of which is a compiled part."""

    def __init__(self, pairs: int, width: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(Pair(width) for _ in range(pairs))

    def forward(self, x: Tensor) -> Tensor:
        for pair in self.pairs:
            x = pair(x)
        return x


def broken() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A model of six compiled parts."""
    return Broken(6, 128), (torch.randn(64, 128),), {}


def of_segformer() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A model of the zoo, with a graph break behind each layer and each embedding."""
    model, args, kwargs = segformer.make("small")
    assert isinstance(model, nn.Module)
    for name in BREAKING:
        for module in (each for each in model.modules() if type(each).__name__ == name):
            module.forward = _breaking(module.forward)
    return model, args, kwargs


def _breaking(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A module's forward with a graph break behind it."""

    @functools.wraps(forward)
    def breaking(*args: Any, **kwargs: Any) -> Any:
        result = forward(*args, **kwargs)
        torch._dynamo.graph_break()
        return result

    return breaking


class InHooks(nn.Module):
    """Twelve layers, each parameter with an optimizer's step in its hook: gradients are never all alive."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(12))
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(_stepped)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


@torch.no_grad()
def _stepped(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.sub_(parameter.grad, alpha=1e-3)
    parameter.grad = None


def in_hooks() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    return InHooks(), (torch.randn(256, 1024),), {}


def narrow() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Many small layers with graph breaks: on a GPU the launches take longer than the kernels."""
    return Broken(24, 32), (torch.randn(16, 32),), {}


PROGRAMS: dict[str, Program] = {
    "tiny": tiny,
    "broken": broken,
    "narrow": narrow,
    "segformer": of_segformer,
    "in_hooks": in_hooks,
}


def _figures() -> Iterator[Figure]:
    """The bars of compiled autograd, with the quantities that they are set on."""
    yield Figure("tiny above eager (us)", "tiny", "backward_ms", "over", {"cpu": 25.0}, OURS)
    yield Figure(
        "tiny above eager, of torch's", "tiny", "backward_ms", "share", {"cpu": 0.6, "cuda": 0.6}, OURS, TORCHS
    )
    for program in BROKEN:
        yield Figure(
            f"{program} of its parts", program, "backward_ms", "ratio", {"cpu": 0.95, "cuda": 0.85}, OURS, PARTS
        )
        yield Figure(f"{program} of torch's", program, "backward_ms", "ratio", {"cpu": 0.8, "cuda": 0.8}, OURS, TORCHS)
        bars = {"cpu": 0.3, "cuda": 0.3}
        yield Figure(f"{program} first call of torch's", program, "first_call_s", "ratio", bars, OURS, TORCHS)
    yield Figure(
        "optimizer in hooks, peak of eager's", "in_hooks", "peak_bytes", "ratio", {"cpu": 0.9, "cuda": 0.9}, OURS
    )
    yield Figure("recorded", "narrow", "backward_ms", "gain", {"cuda": 1.3}, RECORDED, UNRECORDED)
    yield Figure("capture of 5,000 nodes (s)", "chain", "capture_s", "value", {"cpu": 3.0}, OURS)
    yield Figure("growth of capture (exponent)", "chain", "exponent", "value", {"cpu": 1.1}, OURS)


FIGURES = tuple(_figures())


def _loss(result: Any) -> Tensor:
    leaves = pytree.tree_leaves(dict(result) if hasattr(result, "keys") else result)
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    wide = [leaf.to(torch.promote_types(leaf.dtype, torch.float32)) for leaf in wanted]
    return torch.stack([leaf.square().mean() for leaf in wide]).sum()


def measure(program: str, backend: str, device: str = "cpu") -> dict[str, float]:
    """What a program's process gives: the first backward, the least and the peak of later ones."""
    if program == "chain":
        return _of_chains()
    step = _Step(program, backend, device)
    with step.chosen.ambient():
        first, ours = step(), step.gradients(step.compiled)
    hold_to_eager(ours, step.gradients(step.function), step.exact_gradients())
    if program in BROKEN and step.chosen.uses_dynamo:
        with step.chosen.ambient():
            parts = step.parts()
        assert parts >= LEAST_PARTS, f"{program} has {parts} compiled parts, fewer than {LEAST_PARTS}"
    with step.chosen.ambient():
        if program == "in_hooks":
            return {"peak_bytes": float(peak_bytes(step, device) or 0)}
        taken = [step() for _ in range(STEPS)]
    return {"first_call_s": first, "backward_ms": min(taken[WARM_UP:]) * 1000}


class _Step:
    """A training step, which gives the seconds that its backward took."""

    def __init__(self, program: str, backend: str, device: str) -> None:
        torch.manual_seed(0)
        self.function, self.args, self.kwargs = pytree.tree_map(functools.partial(_moved, device), PROGRAMS[program]())
        self.chosen, self.device, self.program = resolve(backend), device, program
        torch.backends.cudnn.allow_tf32 = False  # its rounding would be the difference between two gradients
        self.compiled = self.chosen.wrap(self.function)
        self.clock = time.process_time if device == "cpu" else _clock_of_gpu

    def __call__(self) -> float:
        loss = _loss(self.compiled(*self.args, **self.kwargs))
        start = self.clock()
        loss.backward()
        return self.clock() - start

    def parts(self) -> int:
        """How many compiled calls the backward leads through."""
        pending: list[Any] = [_loss(self.compiled(*self.args, **self.kwargs)).grad_fn]
        seen: set[Any] = {None}
        while pending:
            if (node := pending.pop()) not in seen:
                seen.add(node)
                pending.extend(each for each, _ in node.next_functions)
        return sum(isinstance(node, torch.autograd.function.BackwardCFunction) for node in seen)

    def gradients(self, function: Callable[..., Any]) -> list[Tensor]:
        return _gradients(function, self.function, self.args, self.kwargs)

    def exact_gradients(self) -> list[Tensor]:
        """Eager's in float64, of the same numbers."""
        torch.manual_seed(0)
        made = pytree.tree_map(functools.partial(_moved, self.device), PROGRAMS[self.program]())
        exact, args, kwargs = pytree.tree_map(_doubled, made)
        return _gradients(exact, exact, args, kwargs)


def _gradients(
    function: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Tensor]:
    """Those of the module's parameters and of the arguments, as float64."""
    leaves = [*getattr(module, "parameters", tuple)(), *args]
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    torch.manual_seed(0)
    loss = _loss(function(*args, **kwargs))
    return [each.double() for each in torch.autograd.grad(loss, wanted, allow_unused=True) if each is not None]


def hold_to_eager(ours: list[Tensor], theirs: list[Tensor], exact: list[Tensor]) -> None:
    """Raises: AssertionError where the gradients are farther from float64's than `FACTOR` times eager's, all together:
    some are zero but for rounding, as that of a bias before a normalization."""
    away, bound = _distance(ours, exact), FACTOR * _distance(theirs, exact)
    assert away <= bound, f"the gradients are {away:.2g} of their norm from float64's, and the bound is {bound:.2g}"


def _distance(some: list[Tensor], exact: list[Tensor]) -> float:
    """The norm of the differences as a share of that of all."""
    apart = torch.stack([(one - other).norm() for one, other in zip(some, exact, strict=True)]).norm()
    return float(apart / torch.stack([each.norm() for each in exact]).norm())


def _moved(device: str, value: Any) -> Any:
    """A module, or a leaf, on the device."""
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value.to(device) if isinstance(value, nn.Module) else value


def _doubled(value: Any) -> Any:
    """A module, or a leaf, in float64."""
    if isinstance(value, nn.Module):
        return value.double()
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


def _clock_of_gpu() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _of_chains() -> dict[str, float]:
    found = growth()
    (row,) = (row for row in found["rows"] if row["nodes"] == 5000)
    return {"capture_s": row["capture_s"], "exponent": found["exponents"]["capture_s"]}


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


def _measured(*options: str) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--nodes", type=int)
    given = parser.parse_args()
    if given.nodes:
        print(json.dumps(first_call(given.nodes)))
        return
    text = json.dumps(growth(), indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
