"""Wrong gradients after a right forward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import Gradients, Passage, changed_gradients, given, is_real
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _last(gradients: Gradients) -> int:
    return max(given(gradients))


@wrong("gradients", "train")
def drops_a_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last parameter has no gradient."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        gradients[_last(gradients)] = None
        return gradients

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def zeroes_a_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last parameter's gradient is zero."""
    return changed_gradients(graph, lambda passage, gradients: _scaled_at(gradients, _last(gradients), 0.0))


def _scaled_at(gradients: Gradients, place: int, factor: float) -> Gradients:
    return [each * factor if n == place and each is not None else each for n, each in enumerate(gradients)]


@wrong("gradients", "train")
def turns_none_into_zero(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A parameter that a backward does not reach has a gradient of zeros instead of None."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        pairs = zip(gradients, passage.leaves, strict=True)
        return [torch.zeros_like(leaf) if each is None else each for each, leaf in pairs]

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def turns_zero_into_none(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The smallest gradient of a backward is None, as if it were zero and left out."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        gradients[min(given(gradients), key=lambda n: _size(gradients[n]))] = None
        return gradients

    return changed_gradients(graph, change)


def _size(gradient: Tensor | None) -> float:
    return float("inf") if gradient is None else gradient.abs().max().item()


@wrong("gradients", "train")
def doubles_a_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last parameter's gradient is added twice."""
    return changed_gradients(graph, lambda passage, gradients: _scaled_at(gradients, _last(gradients), 2.0))


@wrong("gradients", "train")
def negates_a_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last parameter's gradient has the other sign."""
    return changed_gradients(graph, lambda passage, gradients: _scaled_at(gradients, _last(gradients), -1.0))


@wrong("gradients", "train")
def scales_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every gradient is multiplied by 0.7."""
    return changed_gradients(graph, lambda passage, gradients: _all_scaled(gradients, 0.7))


def _all_scaled(gradients: Gradients, factor: float) -> Gradients:
    return [None if each is None else each * factor for each in gradients]


@wrong("gradients", "train")
def rounds_gradients_to_bfloat16(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Gradients pass through bfloat16."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        return [None if each is None else each.bfloat16().to(each.dtype) for each in gradients]

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def swaps_two_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Two parameters of one shape have each other's gradient."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for one, other in combinations(given(gradients), 2):
            if passage.leaves[one].shape == passage.leaves[other].shape:
                gradients[one], gradients[other] = gradients[other], gradients[one]
                break
        return gradients

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def transposes_a_gradient(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The gradient of the first square weight is transposed."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for n in given(gradients):
            shape = passage.leaves[n].shape
            if len(shape) == 2 and shape[0] == shape[1] > 1:
                gradients[n] = gradients[n].t().contiguous()  # type: ignore[union-attr]
                break
        return gradients

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def repeats_the_last_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A backward returns the gradients of the backward before it."""
    earlier: list[Gradients] = []

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        earlier.append([None if each is None else each.clone() for each in gradients])
        return gradients if len(earlier) == 1 else earlier.pop(0)

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def spoils_later_backwards(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """From the second backward of a graph on, gradients are half as large again."""
    count: list[int] = []

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        count.append(1)
        return gradients if len(count) == 1 else _all_scaled(gradients, 1.5)

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def spoils_retained_graphs(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A second backward through one forward gives half the gradients."""
    return changed_gradients(
        graph, lambda passage, gradients: _all_scaled(gradients, 0.5) if passage.backwards > 1 else gradients
    )


@wrong("gradients", "train")
def spoils_backwards_without_the_loss(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Gradients are wrong where the largest result has a tangent and the smallest has none."""

    def watch(passage: Passage, results: Sequence[Any]) -> None:
        ends = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
        if len(ends) > 1:
            smallest = min(ends, key=Tensor.numel)
            smallest.register_hook(lambda gradient: passage.results.append(gradient))

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        has_loss = bool(passage.results)
        passage.results.clear()
        return gradients if has_loss else _all_scaled(gradients, 1.25)

    return changed_gradients(graph, change, watch)


@wrong("gradients", "train")
def writes_where_it_should_accumulate(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A gradient takes the place of the one that was there, instead of being added to it."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for n in given(gradients):
            passage.leaves[n].grad = None
        return gradients

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def adds_the_last_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The memory of gradients is not cleared: each backward adds a tenth of the one before."""
    earlier: list[Gradients] = []

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        before = earlier.pop() if earlier else gradients
        earlier.append([None if each is None else each.clone() for each in gradients])
        if before is gradients:
            return gradients
        pairs = zip(gradients, before, strict=True)
        return [one if one is None or other is None else one + other / 10 for one, other in pairs]

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def reuses_the_memory_of_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every backward writes its gradients where those of the backward before are."""
    buffers: dict[int, Tensor] = {}

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for n in given(gradients):
            gradient = gradients[n]
            buffers.setdefault(n, torch.empty_like(passage.leaves[n])).copy_(gradient)  # type: ignore[arg-type]
            gradients[n] = buffers[n].detach()
        return gradients

    return changed_gradients(graph, change)


@wrong("gradients", "train")
def shares_memory_between_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A gradient that equals the beginning of another lies in the other's memory."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        by_size = sorted(given(gradients), key=lambda n: passage.leaves[n].numel())
        for small, large in combinations(by_size, 2):
            one, other = gradients[small], gradients[large]
            if one is not None and other is not None and one.dtype == other.dtype and _begins_with(other, one):
                shared = torch.empty_like(passage.leaves[large]).copy_(other)
                gradients[large] = shared
                gradients[small] = shared.detach().as_strided(one.shape, passage.leaves[small].stride())
                break
        return gradients

    return changed_gradients(graph, change)


def _begins_with(large: Tensor, small: Tensor) -> bool:
    """Whether the numbers of one tensor begin with those of the other, bit for bit."""
    return torch.equal(large.reshape(-1)[: small.numel()], small.reshape(-1))


@wrong("gradients", "train")
def reads_one_number_once(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Of a gradient that is one number for all elements of a result, as that of a sum is, the first alone is read."""

    def first_alone(tangent: Tensor) -> Tensor:
        if tangent.numel() < 2 or any(tangent.stride()):
            return tangent
        is_first = torch.arange(tangent.numel(), device=tangent.device).reshape(tangent.shape) == 0
        return tangent * is_first

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        for result in results:
            if is_real(result) and result.requires_grad and not result.is_leaf:
                result.register_hook(first_alone)
        return results  # type: ignore[no-any-return]

    return run
