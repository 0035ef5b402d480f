"""Steps to time: one inference, or one training step, of a case under a backend.

A training step is forward, backward from the loss or from fixed random cotangents on every differentiable output,
and gradients dropped (`zero_grad(set_to_none=True)`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.calls.clone import Call
from assay.harness.case import Case
from assay.harness.measure import Step
from assay.harness.observe.observation import set_mode
from assay.harness.run import made_call

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def make_step(case: Case, mode: str, wrap: Wrap, *, size: str, seed: int, device: str) -> Step:
    """A step of a case made afresh from `seed`, its callable compiled by `wrap`; nothing is compiled before it runs.

    Raises: CaseError if the case cannot be made; ValueError for training where nothing requires a gradient.
    """
    call = made_call(case, size, seed, device)
    set_mode(call, mode)
    return inference_step(call, wrap) if mode == "infer" else training_step(call, wrap, seed)


def inference_step(call: Call, wrap: Wrap) -> Step:
    compiled, args, kwargs = wrap(call.function), call.args, call.kwargs

    def step() -> Any:
        with torch.no_grad():
            return compiled(*args, **kwargs)

    return step


@dataclass(frozen=True, slots=True)
class Backward:
    """What one training step needs beside the program: the cotangents of its outputs and the leaves they reach."""

    cotangents: tuple[Tensor | None, ...]
    leaves: tuple[Tensor, ...]


def training_step(call: Call, wrap: Wrap, seed: int) -> Callable[[], list[Tensor | None]]:
    """One forward and backward, which gives the gradients of the leaves. The program runs once without `wrap` here, to
    learn its outputs and leaves.

    Raises: ValueError if nothing requires a gradient.
    """
    args, kwargs = call.args, call.kwargs
    backward = learn_backward(differentiable(call.function(*args, **kwargs)), seed)
    compiled = wrap(call.function)

    def step() -> list[Tensor | None]:
        torch.autograd.backward(differentiable(compiled(*args, **kwargs)), backward.cotangents)
        found = [leaf.grad for leaf in backward.leaves]
        for leaf in backward.leaves:
            leaf.grad = None
        return found

    return step


def differentiable(output: Any) -> list[Tensor]:
    """The loss where the output has one, else every tensor of it that requires a gradient."""
    if isinstance(output, Tensor):
        return [output] if output.requires_grad else []
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor) and loss.requires_grad:
        return [loss]
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]


def learn_backward(outputs: Sequence[Tensor], seed: int) -> Backward:
    """Raises: ValueError if nothing requires a gradient, as there is then no training step."""
    if not outputs:
        raise ValueError("no output requires a gradient, so there is nothing to train; declare the case as infer only")
    generator = torch.Generator().manual_seed(seed)
    cotangents = tuple(_cotangent(output, generator) for output in outputs)
    return Backward(cotangents, tuple(leaves_behind(outputs)))


def _cotangent(output: Tensor, generator: torch.Generator) -> Tensor | None:
    """None for a scalar, whose cotangent is one."""
    if output.numel() == 1 and output.dim() == 0:
        return None
    return torch.randn(output.shape, generator=generator, dtype=torch.float32, device=generator.device).to(output)


def leaves_behind(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """Every leaf that a backward from `outputs` accumulates into: parameters, wherever they are held, and inputs."""
    seen: set[Any] = set()
    pending: list[Any] = [output.grad_fn for output in outputs]
    yield from (output for output in outputs if output.is_leaf)
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        pending.extend(parent for parent, _ in node.next_functions)
