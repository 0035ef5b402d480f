"""Zeros that a graph makes of nothing, and what is known of them."""

from __future__ import annotations

import torch
from torch import fx

ZEROS_OF = "zeros_of"
"""The tangents that lead to the formula which gives these zeros: they are undefined where all of these are."""
FILLED = frozenset("full full_like new_full scalar_tensor".split())
ZEROS = frozenset("new_zeros zeros zeros_like".split())


def is_zeros(node: fx.Node) -> bool:
    """Whether a node makes a tensor of the number zero, of either sign."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.removeprefix("aten::")
    return name in ZEROS or (name in FILLED and bool(node.args[-1] == 0))
