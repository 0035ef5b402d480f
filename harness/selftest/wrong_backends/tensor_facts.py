"""Right numbers in a tensor that is not eager's: strides, dtype, shape, gradients required, lazy bits, type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from assay.harness.selftest.wrong_backends.exact import changed_results
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("tensor facts")
def transposes_memory(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result has its dimensions in reverse order in memory."""

    def change(result: Tensor) -> Tensor:
        if result.dim() < 2:
            return result
        turned = result.detach().permute(*reversed(range(result.dim()))).contiguous()
        result.data = turned.permute(*reversed(range(result.dim())))
        return result

    return changed_results(graph, change, largest_only=True)


@wrong("tensor facts")
def offsets_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results begin at the eighth element of their storage."""

    def change(result: Tensor) -> Tensor:
        room = result.detach().new_empty(result.numel() + 8)[8:].view(result.shape)
        result.data = room.copy_(result.detach())
        return result

    return changed_results(graph, change)


@wrong("tensor facts")
def widens_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result is float64."""
    return changed_results(graph, Tensor.double, largest_only=True)


@wrong("tensor facts")
def adds_a_dimension(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A result without dimensions has one, of size 1."""
    return changed_results(graph, lambda result: result.clone().reshape(1) if result.dim() == 0 else result)


@wrong("tensor facts", "train")
def detaches_a_result(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result requires no gradient."""
    return changed_results(graph, Tensor.detach, largest_only=True)


@wrong("tensor facts", "train")
def makes_a_leaf(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result is a leaf that requires a gradient, and leads to no parameter."""

    def change(result: Tensor) -> Tensor:
        return result.detach().requires_grad_() if result.requires_grad else result

    return changed_results(graph, change, largest_only=True)


@wrong("tensor facts", "infer")
def requires_gradients(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, results require a gradient."""

    def change(result: Tensor) -> Tensor:
        return result if torch.is_grad_enabled() else result.detach().requires_grad_()

    return changed_results(graph, change)


@wrong("tensor facts")
def negates_lazily(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result has its negative in memory, and the bit that says so."""
    return changed_results(graph, lambda result: torch._neg_view(-result), largest_only=True)


@wrong("tensor facts", "infer")
def makes_inference_tensors(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are tensors of inference mode, which autograd takes none of."""

    def change(result: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return result
        with torch.inference_mode():
            return result.clone()

    return changed_results(graph, change)


@wrong("tensor facts", "infer")
def makes_parameters(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, results are of the class Parameter."""

    def change(result: Tensor) -> Tensor:
        return result if torch.is_grad_enabled() else nn.Parameter(result, requires_grad=False)

    return changed_results(graph, change)
