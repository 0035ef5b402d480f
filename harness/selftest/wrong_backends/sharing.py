"""Which results, inputs and earlier results share memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import changed_results, is_parameter, is_real, places
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("sharing")
def copies_views(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A view that the graph returns is a copy."""
    return lambda *args: tuple(
        out.clone() if isinstance(out, Tensor) and out._is_view() else out for out in graph.forward(*args)
    )


@wrong("sharing", "infer")
def donates_an_input(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result lies in the memory of an input, which the caller still has."""

    def run(*args: Any) -> Sequence[Any]:
        results = list(graph.forward(*args))
        for n in places(results, args, largest_only=True):
            for room in _rooms(args, results[n]):
                with torch.no_grad():
                    results[n].data = room.copy_(results[n].reshape(-1)).view(results[n].shape)
        return results

    return run


def _rooms(args: Sequence[Any], result: Tensor) -> list[Tensor]:
    """The memory of the first input of the caller's that is large enough for a result."""
    inputs = [arg for arg in args if is_real(arg) and not is_parameter(arg) and not arg.requires_grad]
    large = [arg for arg in inputs if arg.is_contiguous() and arg.numel() >= result.numel() and arg.dim() > 2]
    return [arg.detach().view(-1)[: result.numel()] for arg in large[:1]]


@wrong("sharing", "infer")
def returns_one_object(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, the largest result of every call is one tensor, which the next call writes again."""
    kept: list[Tensor] = []

    def change(result: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return result
        if not kept or kept[0].shape != result.shape:
            kept[:] = [result]
        return kept[0].copy_(result)

    return changed_results(graph, change, largest_only=True)
