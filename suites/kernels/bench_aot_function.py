"""What a call of `aot_function` costs beside the graph, against torch's own: the ratio of one alternating run.

    python -m pytest suites/kernels/bench_aot_function.py -s

Both are given the same graph compilers. `graph` runs each graph as it was recorded; `free` returns what was made
beforehand, so that nothing is left but finding the compile, the calling convention and autograd. `beside` is the ratio
of what both cost beside a floor that no compiler goes below: the write, the view and a bare `torch.autograd.Function`
with the same results, written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_function as aot_function_of_torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from assay.compiler.entry.aot import aot_function, make_boxed_func
from assay.harness.measure import Rounds, Step, alternate

ROUNDS = 30
Function = Callable[..., Any]
GraphCompiler = Callable[[fx.GraphModule, Sequence[object]], Callable[..., Any]]


def as_recorded(gm: fx.GraphModule, _: Sequence[object]) -> Callable[..., Any]:
    return make_boxed_func(gm.forward)


def made_beforehand(gm: fx.GraphModule, _: Sequence[object]) -> Callable[..., Any]:
    """A graph that computes nothing: outputs that are inputs, and tensors that it has already."""
    inputs = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    returned = next(iter(reversed(gm.graph.nodes))).args[0]
    with unset_fake_temporarily():
        ready = {f"ready_{n.name}": torch.ones(tuple(n.meta["val"].shape)) for n in returned if n is not None}
    texts = [f"ready_{n.name}" if n is not None else "None" for n in returned]
    texts = [f"args[{inputs.index(n.name)}]" if n is not None and n.name in inputs else text
             for n, text in zip(returned, texts, strict=True)]  # fmt: skip
    namespace: dict[str, Any] = dict(ready)
    exec(f"def run(args): return [{', '.join(texts)}]", namespace)
    namespace["run"]._boxed_call = True
    return namespace["run"]  # type: ignore[no-any-return]


def scaled(x: Tensor, y: Tensor) -> Tensor:
    return x * y + 1


def written_and_viewed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Written so that the values stay small."""
    x.neg_()
    return x * y + 1, y.view(2, 4)


COMPILERS: dict[str, GraphCompiler] = {"graph": as_recorded, "free": made_beforehand}
FUNCTIONS: dict[str, Function] = {"scaled": scaled, "written_and_viewed": written_and_viewed}


def step(make: Function, function: Function, compiler: GraphCompiler, mode: str) -> Step:
    """A call under no_grad, a call that records, or a call with its backward."""
    compiled = make(function, compiler)
    x, y = (torch.linspace(-1, 1, 8) for _ in range(2))
    x.requires_grad_(mode != "no_grad" and function is scaled)
    y.requires_grad_(mode != "no_grad")
    tangent = torch.ones(8)

    def call() -> Any:
        return compiled(x, y)

    def call_without_gradients() -> Any:
        torch._C._set_grad_enabled(False)  # torch.no_grad itself costs as much as a call
        try:
            return compiled(x, y)
        finally:
            torch._C._set_grad_enabled(True)

    def call_and_backward() -> None:
        result = compiled(x, y)
        torch.autograd.backward([result if isinstance(result, Tensor) else result[0]], [tangent])
        x.grad = y.grad = None

    return {"no_grad": call_without_gradients, "grad": call, "backward": call_and_backward}[mode]


class Bare(torch.autograd.Function):
    """As little as a compiled call can be: results and gradients that are there already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, result: Tensor) -> Tensor:
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[override]
        return gradient if ctx.needs_input_grad[0] else None, gradient, None


def by_hand(function: Function, _: GraphCompiler) -> Function:
    ready = torch.ones(8)

    def made(x: Tensor, y: Tensor) -> Tensor:
        return Bare.apply(x, y, ready) if torch.is_grad_enabled() else ready  # type: ignore[no-any-return, no-untyped-call]

    def written_and_viewed_by_hand(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        result = made(x, y)
        x.copy_(ready)
        return result, y.view(2, 4)

    return made if function is scaled else written_and_viewed_by_hand


def measured(function: Function, compiler: GraphCompiler, mode: str) -> tuple[Rounds, float]:
    """The rounds of ours and torch's, and the milliseconds of the floor."""
    ours = step(aot_function, function, compiler, mode)
    floor = alternate(step(by_hand, function, compiler, mode), lambda: None, rounds=ROUNDS).ours_ms
    theirs = step(aot_function_of_torch, function, compiler, mode)
    return alternate(ours, theirs, rounds=ROUNDS), floor


@pytest.mark.parametrize("mode", ["no_grad", "grad", "backward"])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_aot_function_cost(function: str, compiler: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds, floor = measured(FUNCTIONS[function], COMPILERS[compiler], mode)
    finally:
        torch.set_num_threads(threads)
    low, high = (1 / ratio for ratio in reversed(rounds.spread))
    ours, theirs = rounds.ours_ms * 1e3, rounds.theirs_ms * 1e3
    with capsys.disabled():
        print(
            f"\n{function:20} {compiler:6} {mode:9} {ours:7.2f} us, torch {theirs:7.2f} us, "
            f"ratio {ours / theirs:.2f} ({low:.2f} to {high:.2f})"
            + (f", beside {(ours - floor * 1e3) / (theirs - floor * 1e3):.2f}" if compiler == "free" else ""),
            end="",
        )
