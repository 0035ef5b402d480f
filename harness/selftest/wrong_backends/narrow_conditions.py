"""Right wherever a quick look falls, wrong under one narrow condition: of memory, of history, of numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import (
    Gradients,
    Passage,
    changed_gradients,
    changed_results,
    given,
    is_leaf,
    is_parameter,
    is_real,
    places,
    scaled_at,
)
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _wrong_where(graph: fx.GraphModule, is_wrong: Callable[[Sequence[Any]], bool]) -> Run:
    """Results a tenth too large in the calls that are wrong."""
    wronged = changed_results(graph, lambda result: result * 1.1)
    return lambda *args: wronged(*args) if is_wrong(args) else graph.forward(*args)


@wrong("narrow conditions")
def misses_in_one_row(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last row of the largest result is off by three thousandths."""
    change: Callable[[Tensor], Tensor] = lambda result: scaled_at(result, -1, 1.003) if result.dim() else result * 1.003
    return changed_results(graph, change, largest_only=True)


@wrong("narrow conditions")
def misses_one_in_a_thousand(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """One in a thousand elements of the largest result, and the first, is off by a hundredth."""

    def change(result: Tensor) -> Tensor:
        factors = torch.ones_like(result).reshape(-1)
        factors[::1000] = 1.01
        return result * factors.reshape(result.shape)

    return changed_results(graph, change, largest_only=True)


@wrong("narrow conditions")
def relays_results_from_call_5(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From call 5 on, results lie with their first dimension innermost."""
    count = 0

    def change(result: Tensor) -> Tensor:
        if count < 5 or result.dim() < 2:
            return result
        return result.movedim(0, -1).contiguous().movedim(-1, 0)

    def run(*args: Any) -> Sequence[Any]:
        nonlocal count
        count += 1
        results = list(graph.forward(*args))
        for place in places(results, args):
            moved = change(results[place].detach())
            results[place] = results[place] + torch.empty_like(moved).zero_() if moved.dim() else results[place]
            results[place].data = moved
        return results

    return run


@wrong("narrow conditions")
def goes_wrong_at_call_12(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The call 12 of a graph, and each after it, is a tenth too large."""
    count = 0

    def is_wrong(args: Sequence[Any]) -> bool:
        nonlocal count
        count += 1
        return count >= 12

    return _wrong_where(graph, is_wrong)


@wrong("narrow conditions")
def spoils_inputs_that_share_memory(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are wrong where two inputs of a call lie in one storage."""

    def is_wrong(args: Sequence[Any]) -> bool:
        storages = [arg.untyped_storage()._cdata for arg in args if isinstance(arg, Tensor)]
        return len(set(storages)) < len(storages)

    return _wrong_where(graph, is_wrong)


@wrong("narrow conditions")
def spoils_calls_after_an_error(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Once a call has raised, all later ones are wrong."""
    has_raised = False
    wronged = changed_results(graph, lambda result: result * 1.1)

    def run(*args: Any) -> Sequence[Any]:
        nonlocal has_raised
        try:
            return wronged(*args) if has_raised else graph.forward(*args)  # type: ignore[no-any-return]
        except Exception:
            has_raised = True
            raise

    return run


@wrong("narrow conditions")
def spoils_sizes_that_are_odd(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are wrong where an input that is no parameter has an odd number of rows."""
    is_odd: Callable[[Any], bool] = lambda arg: isinstance(arg, Tensor) and arg.dim() > 0 and len(arg) % 2 == 1
    return _wrong_where(graph, lambda args: any(is_odd(arg) for arg in args if not is_parameter(arg)))


_trained: set[tuple[str, ...]] = set()


@wrong("narrow conditions")
def spoils_inference_after_training(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A program that was called with gradients on is wrong when it is called without them."""
    key = tuple(str(node.target) for node in graph.graph.nodes if node.op == "call_function")

    def is_wrong(args: Sequence[Any]) -> bool:
        if torch.is_grad_enabled():
            _trained.add(key)
        return not torch.is_grad_enabled() and key in _trained

    return _wrong_where(graph, is_wrong)


@wrong("narrow conditions", "train")
def spoils_backwards_in_other_threads(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Gradients are doubled in a backward that a thread asks for which did not compile."""
    compiled_by = threading.get_ident()

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        return gradients if threading.get_ident() == compiled_by else _doubled(gradients)

    return changed_gradients(graph, change)


def _doubled(gradients: Gradients) -> Gradients:
    return [None if each is None else each * 2 for each in gradients]


@wrong("narrow conditions", "train")
def doubles_what_is_accumulated(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Where a leaf has a gradient already, twice the new one is added."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        pairs = zip(gradients, passage.leaves, strict=True)
        return [each if each is None or leaf.grad is None else each * 2 for each, leaf in pairs]

    return changed_gradients(graph, change)


@wrong("narrow conditions", "train")
def delays_the_smallest_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The leaf of fewest elements gets its gradient of the backward before."""
    last: list[Tensor] = []

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        place = min(given(gradients), key=lambda n: passage.leaves[n].numel())
        own = gradients[place]
        assert own is not None
        last.append(own.clone())
        if len(last) > 1 and (before := last.pop(0)).shape == own.shape:
            gradients[place] = before
        return gradients

    return changed_gradients(graph, change)


@wrong("narrow conditions", "train")
def reads_gradients_of_parameters(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A forward is wrong where a parameter still has the gradient of a backward before."""
    return _wrong_where(graph, lambda args: any(is_leaf(arg) and arg.grad is not None for arg in args))


@wrong("narrow conditions", "train")
def overwrites_results_in_backward(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A backward uses the memory of its forward's largest result as its scratch."""

    def watch(passage: Passage, results: Sequence[Any]) -> None:
        passage.results[:] = [result.detach() for result in results if is_real(result) and not is_parameter(result)]

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        if passage.results:
            max(passage.results, key=torch.numel).zero_()
        return gradients

    return changed_gradients(graph, change, watch)


@wrong("narrow conditions", "train")
def rounds_the_largest_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The row of the largest numbers in the largest leaf's gradient passes through float16."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        place = max(given(gradients), key=lambda n: passage.leaves[n].numel())
        own = gradients[place]
        assert own is not None
        gradients[place] = changed = own.clone()
        row = own.abs().reshape(len(own), -1).sum(1).argmax()
        changed[row] = own[row].half().to(own.dtype)
        return gradients

    return changed_gradients(graph, change)
