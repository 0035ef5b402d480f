"""Wrong numbers in what a call returns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import changed_results, scaled_at
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("values")
def scales_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every result is multiplied by 0.7."""
    return changed_results(graph, lambda result: result * 0.7)


@wrong("values")
def negates_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Every result has the other sign."""
    return changed_results(graph, torch.neg)


@wrong("values")
def negates_one_element(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """One element of the largest result has the other sign."""

    def change(result: Tensor) -> Tensor:
        flat = scaled_at(result.reshape(-1), result.numel() // 2, -1.0)
        return flat.reshape(result.shape)

    return changed_results(graph, change, largest_only=True)


@wrong("values")
def misses_by_a_thousand_ulps(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The eight largest elements of the largest result are off by 1024 units in the last place."""

    def change(result: Tensor) -> Tensor:
        top = result.detach().abs().reshape(-1).topk(min(8, result.numel())).indices
        factor = 1 + 1024 * torch.finfo(result.dtype).eps
        return scaled_at(result.reshape(-1), top, factor).reshape(result.shape)

    return changed_results(graph, change, largest_only=True)


@wrong("values")
def misses_by_a_fifth(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The last row of the largest result is wrong by a fifth."""
    return changed_results(graph, lambda result: scaled_at(result, -1, 1.2) if result.dim() else result * 1.2, True)


@wrong("values")
def saturates_results(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result is held below twice its mean magnitude."""

    def change(result: Tensor) -> Tensor:
        bound = 2 * result.detach().abs().mean().item()
        return result.clamp(-bound, bound)

    return changed_results(graph, change, largest_only=True)


@wrong("values")
def rounds_results_to_bfloat16(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results pass through bfloat16."""
    return changed_results(graph, lambda result: result.to(torch.bfloat16).to(result.dtype))


@wrong("values")
def rounds_results_to_float16(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results pass through float16."""
    return changed_results(graph, lambda result: result.to(torch.float16).to(result.dtype))


@wrong("values")
def zeroes_a_result(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result is zero."""
    return changed_results(graph, lambda result: result * 0, largest_only=True)


@wrong("values")
def exchanges_rows(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The rows of the largest result come in reverse order."""
    return changed_results(graph, lambda result: result.flip(0) if result.dim() else result, largest_only=True)


@wrong("values")
def replaces_nan_by_zero(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A NaN in a result is a zero."""
    return changed_results(graph, lambda result: torch.where(result.isnan(), torch.zeros_like(result), result))


@wrong("values")
def negates_zeros(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A zero in a result is a negative zero."""
    return changed_results(graph, lambda result: torch.where(result == 0, -torch.zeros_like(result), result))


@wrong("values")
def loses_a_rounding(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The first result is off in its third digit."""

    def run(*args: object) -> tuple[object, ...]:
        first, *rest = graph.forward(*args)
        is_real = isinstance(first, Tensor) and first.is_floating_point() and not first._is_view()
        return (torch.mul(first, 1.003) if is_real else first, *rest)

    return run
