"""Wrong in what a judge of numbers overlooks: what is left on a leaf, held in a cycle, reserved, printed, or tied."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import (
    Gradients,
    Passage,
    changed_gradients,
    changed_results,
    edited,
    given,
    is_buffer,
    is_leaf,
    is_parameter,
    name_of,
    names_of_inputs,
    places,
)
from assay.harness.selftest.wrong_backends.registry import Run, wrong

KIND = "unwatched"


def _own_inputs(graph: fx.GraphModule, args: Sequence[Any]) -> list[Tensor]:
    """The tensors that a call is given, parameters and buffers apart."""
    pairs = zip(names_of_inputs(graph), args, strict=True)
    return [arg for name, arg in pairs if isinstance(arg, Tensor) and not is_parameter(arg) and not is_buffer(name)]


@wrong(KIND)
def spoils_expanded_inputs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are a tenth too large where an input repeats one row without memory for the others."""
    wronged = changed_results(graph, lambda result: result * 1.1)
    return lambda *args: (wronged if any(map(_is_expanded, _own_inputs(graph, args))) else graph.forward)(*args)


def _is_expanded(value: Tensor) -> bool:
    if value.layout != torch.strided or value.is_nested:
        return False
    return any(size > 1 and step == 0 for size, step in zip(value.shape, value.stride(), strict=True))


@wrong(KIND)
def spoils_inference_mode(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are a tenth too large in inference mode, and right where gradients are only off."""
    wronged = changed_results(graph, lambda result: result * 1.1)
    return lambda *args: (wronged if torch.is_inference_mode_enabled() else graph.forward)(*args)


_sizes: dict[tuple[str, ...], list[list[torch.Size]]] = {}


@wrong(KIND)
def spoils_the_third_size(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A program is right for the first two sizes that it is called with, and for no further one."""
    wronged = changed_results(graph, lambda result: result * 1.1)
    seen = _sizes.setdefault(tuple(name_of(node) for node in graph.graph.nodes if node.op == "call_function"), [])

    def run(*args: Any) -> Sequence[Any]:
        sizes = [each.shape for each in _own_inputs(graph, args)]
        if sizes not in seen:
            seen.append(sizes)
        return (wronged if seen.index(sizes) > 1 else graph.forward)(*args)  # type: ignore[no-any-return]

    return run


@wrong(KIND, "train")
def forgets_the_last_use_of_a_parameter(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A parameter that two operators read, as tied ones are, has the gradient of all but the last."""

    def detach_last(node: fx.Node) -> None:
        users = list(node.users)
        if node.op == "placeholder" and "_parameters_" in node.name and len(users) > 1:
            with node.graph.inserting_before(users[-1]):
                users[-1].replace_input_with(node, node.graph.call_method("detach", (node,)))

    return edited(graph, detach_last).forward


@wrong(KIND, "train")
def drops_what_meets_another_layout(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Nothing is added to a gradient that lies otherwise in memory than its leaf."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        pairs = zip(gradients, passage.leaves, strict=True)
        return [None if leaf.grad is not None and _lies_otherwise(leaf) else each for each, leaf in pairs]

    return changed_gradients(graph, change)


def _lies_otherwise(leaf: Tensor) -> bool:
    assert leaf.grad is not None
    return leaf.grad.layout == torch.strided and leaf.grad.stride() != leaf.stride()


@wrong(KIND, "train")
def adds_a_gradient_by_itself(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last leaf's gradient is added to `.grad` by the backend, which calls its hooks too, whoever asked for it."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        last = max(given(gradients))
        gradient, gradients[last] = gradients[last], None
        assert gradient is not None
        _accumulate(passage.leaves[last], gradient)
        return gradients

    return changed_gradients(graph, change)


def _accumulate(leaf: Any, gradient: Tensor) -> None:
    for hook in list((leaf._backward_hooks or {}).values()):
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    with torch.no_grad():
        if leaf.grad is None:
            leaf.grad = gradient.clone()
        else:
            leaf.grad.add_(gradient)
    for hook in list((leaf._post_accumulate_grad_hooks or {}).values()):
        hook(leaf)


@wrong(KIND, "train")
def misreads_tangents_in_columns(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A tangent that lies in columns is read as if it lay in rows."""

    def run(*args: Any) -> Sequence[Any]:
        results = list(graph.forward(*args))
        for place in places(results, args):
            if results[place].requires_grad:
                results[place] = _ReadInRows.apply(results[place])
        return results

    return run


class _ReadInRows(torch.autograd.Function):
    """A result as it is; its tangent as if it lay in rows."""

    @staticmethod
    def forward(ctx: Any, result: Tensor) -> Tensor:
        return result.clone(memory_format=torch.preserve_format)

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Tensor:
        return _in_rows(tangents[0])


def _in_rows(tangent: Tensor) -> Tensor:
    if tangent.dim() < 2 or not torch.ops.aten.is_non_overlapping_and_dense(tangent):
        return tangent
    return tangent.as_strided(tangent.shape, torch.empty(tangent.shape, device="meta").stride())


@wrong(KIND, "train")
def leaves_a_hook_on_a_leaf(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call registers a hook on its first leaf, and takes none off."""

    def run(*args: Any) -> Sequence[Any]:
        for leaf in list(filter(is_leaf, args))[:1]:
            leaf.register_hook(lambda gradient: None)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong(KIND)
def reserves_too_much_memory(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The storage of the largest result has room for four of it."""

    def run(*args: Any) -> Sequence[Any]:
        results: Sequence[Any] = graph.forward(*args)
        for place in places(results, args, largest_only=True):
            own = results[place]
            room = own.detach().new_empty(4 * own.untyped_storage().nbytes() // own.element_size())
            own.data = room.as_strided(own.size(), own.stride()).copy_(own.detach())
        return results

    return run


@wrong(KIND)
def holds_inputs_in_a_cycle(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The inputs of a call live on until Python looks for cycles."""

    def run(*args: Any) -> Sequence[Any]:
        cycle: list[Any] = [_own_inputs(graph, args)]
        cycle.append(cycle)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong(KIND)
def prints_in_every_call(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call prints a line."""

    def run(*args: Any) -> Sequence[Any]:
        print("a graph was run")
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong(KIND)
def swallows_warnings(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Warnings of the program are ignored within a call."""

    def run(*args: Any) -> Sequence[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong(KIND, "train")
def detaches_the_smallest_result(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Of several results that require gradients, the smallest requires none."""

    def run(*args: Any) -> Sequence[Any]:
        results = list(graph.forward(*args))
        found = [place for place in places(results, args) if results[place].requires_grad]
        if len(found) > 1:
            results[found[-1]] = results[found[-1]].detach()
        return results

    return run
