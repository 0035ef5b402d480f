"""`rebased`: the inputs whose writes alone lead gradients from the value after the call to the one before.

v.mul_(w); v.add_(1)             rebased
v.mul_(w); w.add_(v); v.mul_(w)  not: w has gradients that lead to what v was between its writes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch.autograd.graph import Node

from assay.compiler.ir.graph.roles import CallInput, Mutation, OutputRole, Rebased, Shared


def rebased(
    values: Mapping[OutputRole, torch.Tensor], leaves: Mapping[CallInput | Shared, torch.Tensor]
) -> Iterator[Rebased]:
    """The effects of a call that returns such values, for those of its inputs that it writes.

    Cost: one visit a node for each written input.
    """
    for role, value in values.items():
        if not isinstance(role, Mutation) or isinstance(role.of, Shared) or role.of not in leaves:
            continue
        if _is_chain(value, leaves[role.of]):
            yield Rebased(role.of)


def _is_chain(value: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether autograd's graph leads from a value to a leaf through one node after another, each read by one alone.

    The first thing that a write in place takes is what it writes.
    """
    node, readers = value.grad_fn, Counter(_reads(value.grad_fn))
    while node is not None and node.next_functions:
        node = node.next_functions[0][0]
        if node is None or readers[node] != 1:
            return False
    return getattr(node, "variable", None) is leaf


def _reads(start: Node | None) -> Iterator[Node]:
    """The nodes behind one, each as often as it is read."""
    pending, seen = [start], {start}
    while pending:
        node = pending.pop()
        for parent, _ in node.next_functions if node is not None else ():
            if parent is None:
                continue
            yield parent
            if parent not in seen:
                seen.add(parent)
                pending.append(parent)
