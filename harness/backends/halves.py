"""A graph whose forward is of one compiler and whose backward is of another: which half of a backend is wrong.

Both compilers run the whole graph, on inputs of their own. The results are those of the first, and what autograd does
with them is that of the second. So the second one's backward reads what its own forward has saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Compiled = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Ran:
    """What both runs came to: the results to give, and the results to go back from, to the inputs of the second run."""

    given: tuple[Tensor, ...]
    ends: tuple[Tensor, ...]
    begins: tuple[Tensor, ...]


class _Joined(torch.autograd.Function):
    """Gives the results of one run, and the gradients of the other."""

    @staticmethod
    def forward(ctx: Any, ran: _Ran, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.ran = ran
        ctx.set_materialize_grads(False)
        return ran.given

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        known = [(end, gradient) for end, gradient in zip(ctx.ran.ends, gradients, strict=True) if gradient is not None]
        ends, given = zip(*known, strict=True)
        found = torch.autograd.grad(ends, ctx.ran.begins, given, retain_graph=True, allow_unused=True)
        return (None, *found)


def in_halves(forward: Compiled, backward: Compiled) -> Compiled:
    """A callable with the results of `forward` and the gradients of `backward`; without gradients `forward` alone.

    Both draw the same random numbers. What is written to inputs is written by `forward`.
    """

    def run(*args: Any) -> Any:
        if not (torch.is_grad_enabled() and any(_needs_gradient(arg) for arg in args)):
            return forward(*args)
        with torch.random.fork_rng():
            others = [_like(arg, is_copy=True) for arg in args]
            ends = backward(*others)
        results = list(forward(*(_like(arg, is_copy=False) for arg in args)))
        places = [place for place, result in enumerate(results) if _needs_gradient(result)]
        given = tuple(results[place].detach() for place in places)
        begins = tuple(other for other in others if _needs_gradient(other))
        ran = _Ran(given, tuple(ends[place] for place in places), begins)
        joined = _Joined.apply(ran, *(arg for arg in args if _needs_gradient(arg))) if places else ()
        for place, result in zip(places, joined, strict=True):
            results[place] = result
        return tuple(results)

    return run


def _needs_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _like(value: Any, is_copy: bool) -> Any:
    """A leaf of the tensor's numbers, in the same memory or in memory of its own; any other value as it is."""
    if not isinstance(value, Tensor):
        return value
    made = value.detach()
    if is_copy:
        made = made.clone(memory_format=torch.preserve_format)
    return made.requires_grad_(value.requires_grad)


def chosen(half: str, whole: Compiled, below: Compiled) -> Compiled:
    """The graph with this half of `whole` and the other half of `below`: `forward`, `backward`, `both`, `neither`."""
    pairs: dict[str, Sequence[Compiled]] = {
        "forward": (whole, below), "backward": (below, whole), "both": (whole, whole), "neither": (below, below),
    }  # fmt: skip
    return in_halves(*pairs[half])


HALVES = ("forward", "backward", "both", "neither")
