"""By which views a tensor was made of its base, as the nodes of autograd tell.

The chain ends at the base's own node. A base that was detached in place has none any more. Autograd still leads from
the view to whatever computed the base's numbers, which is no view. There the chain ends before the first node whose
operator is no view of ATen's.
"""

from __future__ import annotations

import functools
import re

import torch
from torch import Tensor

CUSTOM = "custom"
"""The name of a node that is none of ATen's: a backend may name the node of a whole program as it likes."""


def history_of(tensor: Tensor) -> tuple[bool, bool, tuple[str, ...]]:
    """Whether a tensor is a leaf, whether it has a `grad_fn`, and its view chain.

    A view that a write through another view made invalid raises when it is asked, and says so in its chain.
    """
    try:
        is_leaf, node = tensor.is_leaf, tensor.grad_fn
    except RuntimeError:
        return False, True, ("invalid",)
    if node is None or tensor._base is None:
        return is_leaf, node is not None, ()
    return is_leaf, True, _view_chain(node, tensor._base)


def _view_chain(node: torch.autograd.graph.Node | None, base: Tensor) -> tuple[str, ...]:
    chain = []
    while node is not None and node is not base.grad_fn and not hasattr(node, "variable"):
        chain.append(_node_name(node))
        node = node.next_functions[0][0] if node.next_functions else None
    if node is not None and (node is base.grad_fn or getattr(node, "variable", None) is base):
        return tuple(chain)
    beyond = [at for at, name in enumerate(chain) if at and not _is_view(name)]
    return tuple(chain[: beyond[0]] if beyond else chain)


def _node_name(node: torch.autograd.graph.Node) -> str:
    """The name of an autograd node of ATen's, which ends in a number or is C++'s; that of any other is `custom`."""
    name = node.name().rpartition("::")[2]
    return name if name[-1].isdigit() or "::" in node.name() else CUSTOM


@functools.cache
def _is_view(name: str) -> bool:
    """Whether the operator of a node returns memory that it was given, as its schema says."""
    operator = re.sub(r"(?<!^)(?=[A-Z])", "_", re.sub(r"Backward\d*$", "", name)).lower()
    schemas = [
        schema
        for prefix in ("aten::", "aten::_")
        for schema in torch._C._jit_get_schemas_for_operator(f"{prefix}{operator}")
    ]
    aliased = [returned.alias_info for schema in schemas for returned in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliased)
