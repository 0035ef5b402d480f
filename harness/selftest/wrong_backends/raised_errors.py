"""What is raised and warned of: too much, too little, or of another class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import Gradients, Passage, changed_gradients, is_leaf
from assay.harness.selftest.wrong_backends.registry import Run, wrong


class _OwnGraph(torch.autograd.Function):
    """A graph that records a graph of its own, which every backward through it goes through and none frees."""

    @staticmethod
    def forward(ctx: Any, inside: _Inside, *leaves: Tensor) -> tuple[Tensor, ...]:
        ctx.inside = inside
        ctx.set_materialize_grads(False)
        return tuple(each.detach() for each in inside.run(leaves))

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        return None, *ctx.inside.go_back(tangents)


class _Inside:
    """The graph of one call: its arguments, where its leaves are among them, its results."""

    def __init__(self, graph: fx.GraphModule, args: Sequence[Any], raises: type[Exception] | None) -> None:
        self.graph, self.args, self.raises = graph, list(args), raises
        self.where = [n for n, arg in enumerate(args) if is_leaf(arg)]
        self.backwards, self.results, self.ends, self.leaves = 0, [], [], []  # type: ignore[var-annotated]

    def run(self, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
        # A tensor of its own version: autograd's check of what was saved sees no later write.
        self.leaves = [leaf.data.requires_grad_() for leaf in leaves]
        for n, leaf in zip(self.where, self.leaves, strict=True):
            self.args[n] = leaf
        with torch.enable_grad():
            self.results = list(self.graph.forward(*self.args))
        self.ends = [each for each in self.results if isinstance(each, Tensor) and each.requires_grad]
        return self.ends

    def go_back(self, tangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        self.backwards += 1
        if self.raises is not None and self.backwards > 1:
            raise self.raises("the results of this call were handed back")
        pairs: list[Any] = [(end, each) for end, each in zip(self.ends, tangents, strict=True) if each is not None]
        ends, cotangents = [end for end, _ in pairs], [each for _, each in pairs]
        return torch.autograd.grad(ends, self.leaves, cotangents, retain_graph=True, allow_unused=True)


def _with_own_graph(graph: fx.GraphModule, raises: type[Exception] | None = None) -> Run:
    """The graph as one autograd function; as it is where a result is a view, which a function returns as none."""
    values = [node.meta.get("example_value") for node in graph.graph.output_node().all_input_nodes]
    has_views = any(isinstance(each, Tensor) and each._is_view() for each in values)

    def run(*args: Any) -> Sequence[Any]:
        inside = _Inside(graph, args, raises)
        if not torch.is_grad_enabled() or not inside.where or has_views:
            return graph.forward(*args)  # type: ignore[no-any-return]
        ends = iter(_OwnGraph.apply(inside, *(args[n] for n in inside.where)))
        return [next(ends) if isinstance(each, Tensor) and each.requires_grad else each for each in inside.results]

    return run


@wrong("errors", "train")
def lets_a_graph_be_used_twice(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Nothing is raised by a second backward through a graph that was freed, nor by a write to what was saved."""
    return _with_own_graph(graph)


@wrong("errors", "train")
def raises_another_class(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A second backward through one forward raises KeyError, retained or not."""
    return _with_own_graph(graph, KeyError)


@wrong("errors", "train")
def raises_in_later_backwards(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From the fourth backward on, a backward raises."""
    count: list[int] = []

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        count.append(1)
        if len(count) >= 4:
            raise RuntimeError("the memory of a recording is used up")
        return gradients

    return changed_gradients(graph, change)


@wrong("errors")
def warns_in_every_call(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call gives a warning that eager does not give."""

    def run(*args: Any) -> Sequence[Any]:
        warnings.warn_explicit("this backend is experimental", UserWarning, "experimental_backend.py", 1)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run
