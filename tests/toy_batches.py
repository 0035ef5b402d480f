"""A small suite of batches, for tests of what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.compiler.errors import Unsupported
from assay.harness.batches.sample import Batch, Sample


def plus(x: Tensor) -> Tensor:
    return x + 1


def squared(x: Tensor) -> Tensor:
    return x @ x


def ordered(x: Tensor) -> Tensor:
    return torch.sort(x).values


def shifted(x: Tensor) -> Tensor:
    return x - 1


def rejected(x: Tensor) -> Tensor:
    return x.view(3, 3)


def drawn(x: Tensor) -> Tensor:
    return x + torch.rand(2)


def samples(*functions: Callable[[Tensor], Tensor]) -> Callable[[int], list[Sample]]:
    """Makes one sample of each function, named after it and its number."""

    def make(seed: int) -> list[Sample]:
        torch.manual_seed(seed)
        return [
            Sample(f"{number} {function.__name__}", function, (torch.randn(2, 2, requires_grad=True),), {})
            for number, function in enumerate(functions)
        ]

    return make


ALL = Batch("toys.float32.forward", "toys.float32", "infer", samples(plus, squared, ordered, shifted, plus))


def batches() -> Iterator[Batch]:
    yield ALL
    yield Batch("more.float32.forward", "more.float32", "infer", samples(plus, shifted), shapes=("static",))


def in_eager_by_design(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that is eager but for one fault."""
    backend.runs_in_eager = True  # type: ignore[attr-defined]
    return backend


@in_eager_by_design
def wrong_in_difference(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Every subtraction is off by a hundredth."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target.__name__ == "sub":
            node.args = (node.args[0], 1.01)
    gm.recompile()
    return gm.forward


@in_eager_by_design
def refuses_sort(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A backend that declines what it cannot sort."""
    if "sort" in gm.code:
        raise Unsupported("no sorting here")
    return gm.forward


def breaks_among_many(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """The second result of several is another's."""

    def run(*args: object) -> tuple[Any, ...]:
        results = list(gm.forward(*args))
        if len(results) > 1:
            results[1] = results[0].clone()
        return tuple(results)

    return run


def doubles_gradients(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Values are right, and twice the gradient goes back through each."""
    return lambda *args: tuple(result * 2 - result.detach() for result in gm.forward(*args))
