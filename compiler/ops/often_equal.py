"""Which floats are often equal, as those that were computed of halves or of whole numbers alone.

    softmax(logits.float()).topk(2)    ->    logits are bfloat16: equal ones have equal probabilities

Which one of equals an operator takes first, where that is not promised, shows then.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from assay.compiler.ir.tensors.layout.strides import hint
from assay.compiler.ir.typed_nodes import node_argument

RARELY_EQUAL = (torch.float32, torch.float64)
"""Dtypes of which few elements are equal, unless they are made of others. Of others it shows, where nothing is
promised, which one of equals eager's algorithm happens to put first."""
ORDERED = (torch.ops.aten.topk, torch.ops.aten.sort)
"""The operators for which it is asked."""
KEEP_EQUALS = (
    *(torch.ops.aten._to_copy.default, torch.ops.aten.clone.default, torch.ops.prims.convert_element_type.default),
    *(torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default),
)
"""Operators that make equals of equals, which torch does not call pointwise."""
MOST_NODES = 64
"""How many nodes are looked at; behind more, elements count as seldom equal."""


def orders_equals(node: fx.Node) -> bool:
    """Whether an operator puts elements in order that are often equal."""
    is_ordering = getattr(node.target, "overloadpacket", None) in ORDERED
    return is_ordering and often_equal(node_argument(node, 0))


def often_equal(node: fx.Node) -> bool:
    """Whether a value is made, element by element, of elements in coarser dtypes alone.

    What has fewer elements does not count: one maximum or one sum for each row leaves equals equal.
    """
    size, pending, seen = _size_of(node), [node], {node}
    is_coarse = False
    while pending:
        current = pending.pop()
        value = current.meta.get("val")
        if not isinstance(value, torch.Tensor) or _size_of(current) < size:
            continue
        if value.dtype not in RARELY_EQUAL:
            is_coarse = True
            continue
        if not _is_by_elements(current) or len(seen) > MOST_NODES:
            return False
        read = [each for each in current.all_input_nodes if each not in seen]
        seen.update(read)
        pending += read
    return is_coarse


def _is_by_elements(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in target.tags or target.is_view or target in KEEP_EQUALS


def _size_of(node: fx.Node) -> int:
    value = node.meta.get("val")
    return math.prod(map(hint, value.shape)) if isinstance(value, torch.Tensor) else 0
