"""What the wrong backends are made of: the graph run exactly as eager runs it, with one place to do wrong.

changed_results(graph, change)      what the graph returns, changed
changed_gradients(graph, change)    what arrives at the leaves, changed on its way
edited(graph, edit)                 the graph with some of its nodes changed
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from assay.harness.selftest.wrong_backends.registry import Run

Gradients = list[Tensor | None]


def changed_results(graph: fx.GraphModule, change: Callable[[Tensor], Tensor], largest_only: bool = False) -> Run:
    """Runs the graph and changes each result that is a tensor of its own; or only the largest of these."""

    def run(*args: Any) -> Sequence[Any]:
        results = list(graph.forward(*args))
        for index in places(results, args, largest_only):
            results[index] = change(results[index])
        return results

    return run


def places(results: Sequence[Any], args: Sequence[Any], largest_only: bool = False) -> list[int]:
    """Where the results are real tensors that are neither inputs nor views, nor looked at through another result."""
    inputs = {id(arg) for arg in args}
    found = [n for n, result in enumerate(results) if is_real(result) and id(result) not in inputs]
    bases = {id(result._base) for result in results if isinstance(result, Tensor) and result._base is not None}
    found = [n for n in found if not results[n]._is_view() and id(results[n]) not in bases]
    return sorted(found, key=lambda n: -results[n].numel())[: 1 if largest_only else None]


def is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def value_from(result: Tensor, numbers: Tensor) -> Tensor:
    """The numbers, with the gradients of the result."""
    return result + (numbers - result).detach() if result.requires_grad else numbers.clone()


def scaled_at(result: Tensor, place: Any, factor: float) -> Tensor:
    """The result with the elements at an index multiplied."""
    factors = torch.ones_like(result)
    factors[place] = factor
    return result * factors


@dataclass(slots=True)
class Passage:
    """One forward of a graph, as its backward sees it: the leaves, and how many backwards it has had."""

    forward: int
    leaves: tuple[Tensor, ...]
    backwards: int = 0
    results: list[Tensor] = field(default_factory=list)


ChangeGradients = Callable[[Passage, Gradients], Sequence[Tensor | None]]


class _OnTheWay(torch.autograd.Function):
    """The leaves as they are; their gradients changed, all of them together."""

    @staticmethod
    def forward(ctx: Any, change: ChangeGradients, passage: Passage, *leaves: Tensor) -> tuple[Tensor, ...]:
        ctx.change, ctx.passage = change, passage
        ctx.set_materialize_grads(False)
        return tuple(leaf.view_as(leaf) for leaf in leaves)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.passage.backwards += 1
        return None, None, *ctx.change(ctx.passage, list(gradients))


def changed_gradients(graph: fx.GraphModule, change: ChangeGradients, watch: Callable[..., None] | None = None) -> Run:
    """Runs the graph and changes the gradients of its leaves. `watch(passage, results)` sees the results first."""
    forwards = 0

    def run(*args: Any) -> Sequence[Any]:
        nonlocal forwards
        where = [n for n, arg in enumerate(args) if is_leaf(arg)] if torch.is_grad_enabled() else []
        if not where:
            return graph.forward(*args)  # type: ignore[no-any-return]
        passage, forwards = Passage(forwards, tuple(args[n] for n in where)), forwards + 1
        given = list(args)
        for n, leaf in zip(where, _OnTheWay.apply(change, passage, *passage.leaves), strict=True):
            given[n] = leaf
        results = graph.forward(*given)
        if watch is not None:
            watch(passage, results)
        return results  # type: ignore[no-any-return]

    return run


def is_leaf(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and value.is_leaf


def given(gradients: Sequence[Tensor | None]) -> Iterator[int]:
    """The places of the gradients that are there."""
    return (n for n, gradient in enumerate(gradients) if gradient is not None)


def edited(graph: fx.GraphModule, edit: Callable[[fx.Node], None]) -> fx.GraphModule:
    """A copy of the graph, of which `edit` has seen every node."""
    copied = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for node in list(copied.graph.nodes):
        edit(node)
    copied.recompile()
    return copied


def name_of(node: fx.Node) -> str:
    """The last name of what a node calls."""
    return getattr(node.target, "__name__", str(node.target)).rpartition(".")[2]


def is_buffer(placeholder: str) -> bool:
    """Whether Dynamo's name of an input is that of a module's buffer."""
    return "_buffers_" in placeholder


def names_of_inputs(graph: fx.GraphModule) -> list[str]:
    return [node.name for node in graph.graph.nodes if node.op == "placeholder"]


def is_parameter(value: object) -> bool:
    return isinstance(value, nn.Parameter)


def on_copies(graph: fx.GraphModule, args: Sequence[Any]) -> tuple[Sequence[Any], list[tuple[Tensor, Tensor]]]:
    """Runs the graph on copies of what no gradient is wanted of: its results, and each written input with its copy."""
    copies = [arg.clone() if isinstance(arg, Tensor) and not arg.requires_grad else arg for arg in args]
    results = graph.forward(*copies)
    pairs = [(arg, made) for arg, made in zip(args, copies, strict=True) if made is not arg]
    return results, [(arg, made) for arg, made in pairs if not torch.equal(arg, made)]
