"""Random numbers of another stream, and streams that do not stand where eager leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import edited, name_of
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _after(graph: fx.GraphModule, action: Callable[[], object]) -> Run:
    """Runs the graph, then the action."""

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        action()
        return results  # type: ignore[no-any-return]

    return run


@wrong("random streams")
def draws_one_more(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call draws one number more than eager."""
    return _after(graph, lambda: torch.rand(1))


@wrong("random streams")
def seeds_again(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call leaves the stream as a seed of 7 makes it."""
    return _after(graph, lambda: torch.manual_seed(7))


@wrong("random streams")
def moves_python_on(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call draws a number from Python's own stream."""
    return _after(graph, random.random)


@wrong("random streams")
def moves_numpy_on(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call draws a number from NumPy's stream."""
    return _after(graph, numpy.random.rand)


@wrong("random streams", "train")
def leaves_the_stream_behind(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The stream stands after a call where it stood before it."""

    def run(*args: Any) -> Sequence[Any]:
        before = torch.get_rng_state()
        results = graph.forward(*args)
        torch.set_rng_state(before)
        return results  # type: ignore[no-any-return]

    return run


def _from(state: Tensor, graph: fx.GraphModule, args: Sequence[Any]) -> Sequence[Any]:
    """Runs the graph with the stream of a state; the global stream moves on as eager's does."""
    before = torch.get_rng_state()
    with torch.no_grad():
        graph.forward(*(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args))
    after = torch.get_rng_state()
    if torch.equal(before, after):  # nothing is drawn
        return graph.forward(*args)  # type: ignore[no-any-return]
    torch.set_rng_state(state)
    results = graph.forward(*args)
    torch.set_rng_state(after)
    return results  # type: ignore[no-any-return]


@wrong("random streams", "train")
def repeats_its_draws(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call draws what the first drew; the stream moves on as it should."""
    state: list[Tensor] = []

    def run(*args: Any) -> Sequence[Any]:
        state.append(torch.get_rng_state())
        del state[1:]
        return _from(state[0], graph, args)

    return run


@wrong("random streams", "train")
def draws_from_another_stream(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """What is drawn comes from a stream of the backend's own; the global one moves on as it should."""
    own = torch.Generator().manual_seed(11)

    def run(*args: Any) -> Sequence[Any]:
        torch.rand(1, generator=own)
        return _from(own.get_state(), graph, args)

    return run


@wrong("random streams", "train")
def skips_dropout(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In training, dropout draws its numbers and drops nothing."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "dropout":
            node.target = _kept

    return edited(graph, edit).forward  # type: ignore[no-any-return]


def _kept(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    torch.nn.functional.dropout(input, *args, **kwargs)
    return input
