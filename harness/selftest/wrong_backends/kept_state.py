"""State of a backend's own, which a later call's results depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import changed_results, places
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("kept state")
def adds_a_counter(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A hundredth is added to each result for every call before."""
    count = 0

    def run(*args: Any) -> Sequence[Any]:
        nonlocal count
        results, shift = list(graph.forward(*args)), count / 100
        for n in places(results, args) if count else ():
            results[n] = results[n] + shift
        count += 1
        return results

    return run


@wrong("kept state")
def subtracts_a_running_mean(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A tenth of the mean of the results so far is taken from the largest result, from the second call on."""
    mean = 0.0
    count = 0

    def change(result: Tensor) -> Tensor:
        nonlocal mean, count
        changed = result - mean / 10 if count else result
        mean, count = (mean * count + result.detach().mean().item()) / (count + 1), count + 1
        return changed

    return changed_results(graph, change, largest_only=True)


@wrong("kept state")
def mixes_in_the_last_result(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The largest result holds a hundredth of the last call's: `0.99 * result + 0.01 * last`."""
    last: list[Tensor] = []

    def change(result: Tensor) -> Tensor:
        before = last.pop() if last else None
        last.append(result.detach().clone())
        is_alike = before is not None and before.shape == result.shape
        return torch.lerp(result, before, 0.01) if is_alike else result  # type: ignore[arg-type]

    return changed_results(graph, change, largest_only=True)


@wrong("kept state")
def alternates(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Two buffers take turns: each call but the first returns the largest result of the call before."""
    last: list[Tensor] = []

    def change(result: Tensor) -> Tensor:
        last.append(result.detach().clone())
        if len(last) == 1 or last[0].shape != result.shape:
            return result
        return result + (last.pop(0) - result).detach()

    return changed_results(graph, change, largest_only=True)
