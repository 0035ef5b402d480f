"""One operator inside the program replaced by one that is nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import edited, is_real, name_of
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("operators")
def approximates_gelu(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """An exact GELU is computed by its tanh formula."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "gelu":
            node.kwargs = {**node.kwargs, "approximate": "tanh"}

    return edited(graph, edit).forward  # type: ignore[no-any-return]


@wrong("operators")
def changes_epsilon(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Layer norm takes a tenth of a per cent for its epsilon."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "layer_norm":
            node.args, node.kwargs = node.args[:4], {**node.kwargs, "eps": 1e-3}

    return edited(graph, edit).forward  # type: ignore[no-any-return]


@wrong("operators")
def ignores_masks(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Attention reads what its mask hides."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "scaled_dot_product_attention":
            node.args, node.kwargs = node.args[:3], {**node.kwargs, "attn_mask": None, "is_causal": False}

    return edited(graph, edit).forward  # type: ignore[no-any-return]


@wrong("operators")
def multiplies_in_bfloat16(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The operands of every matrix product and convolution are rounded to bfloat16."""

    def edit(node: fx.Node) -> None:
        if name_of(node) in ("linear", "conv2d", "matmul"):
            with node.graph.inserting_before(node):
                rounded = [node.graph.call_function(_rounded, (operand,)) for operand in node.args[:2]]
            node.args = (*rounded, *node.args[2:])

    return edited(graph, edit).forward  # type: ignore[no-any-return]


def _rounded(operand: Any) -> Any:
    return operand.bfloat16().to(operand.dtype) if is_real(operand) else operand


@wrong("operators")
def averages_over_padding(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A mean cross entropy divides by all labels, those to be ignored included."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "cross_entropy":
            node.target = _mean_over_all

    return edited(graph, edit).forward  # type: ignore[no-any-return]


def _mean_over_all(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    mean = torch.nn.functional.cross_entropy(input, target, *args, **kwargs)
    return mean * (target >= 0).sum() / target.numel()  # a label to be ignored is negative


@wrong("operators")
def narrows_a_softmax(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Scaled attention has a scale that is two per cent too large."""

    def edit(node: fx.Node) -> None:
        if name_of(node) == "scaled_dot_product_attention":
            node.target = _too_sharp

    return edited(graph, edit).forward  # type: ignore[no-any-return]


def _too_sharp(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query * 1.02, *args, **kwargs)
