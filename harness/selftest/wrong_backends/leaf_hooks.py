"""Hooks on leaves: lost, called too often, given other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import Gradients, Passage, changed_gradients, given
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("hooks", "train")
def accumulates_behind_hooks(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Gradients are added to `.grad` directly, so that no hook of a leaf is called."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for n in given(gradients):
            leaf, gradient = passage.leaves[n], gradients[n]
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient  # type: ignore[operator]
        return [None] * len(gradients)

    return changed_gradients(graph, change)


@wrong("hooks", "train")
def takes_hooks_off(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The hooks of leaves are taken off before gradients arrive."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        for leaf in passage.leaves:
            for hooks in (leaf._backward_hooks, getattr(leaf, "_post_accumulate_grad_hooks", None)):
                if hooks:
                    hooks.clear()
        return gradients

    return changed_gradients(graph, change)


@wrong("hooks", "train")
def loses_the_hooks_of_one_leaf(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The gradient of the last leaf is put into `.grad`, and its hooks are not called."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        last = max(given(gradients))
        leaf, gradient = passage.leaves[last], gradients[last]
        leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient  # type: ignore[operator]
        gradients[last] = None
        return gradients

    return changed_gradients(graph, change)


@wrong("hooks", "train")
def delivers_in_two_parts(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each gradient arrives in two halves, so that hooks are called twice and see half of it."""

    def change(passage: Passage, gradients: Gradients) -> Gradients:
        halves: Gradients = [None if each is None else each / 2 for each in gradients]
        _deliver(passage.leaves, halves)
        return halves

    return changed_gradients(graph, change)


def _deliver(leaves: Sequence[Tensor], gradients: Gradients) -> None:
    """One backward that brings these gradients to the leaves."""
    pairs: list[Any] = [(leaf, each) for leaf, each in zip(leaves, gradients, strict=True) if each is not None]
    with torch.enable_grad():
        ends = [leaf.view_as(leaf) for leaf, _ in pairs]
    torch.autograd.backward(ends, [each for _, each in pairs])
