"""`add_copies`: copies of results, for backward to be computed from.

A model returns its logits in half precision, and its loss reads them in float32. Eager keeps what the loss made of
them, not the logits themselves, which the user may write before backward; so backward may not read them either. A copy
is nobody's but backward's, in half the memory of what is made of it. The cut (rematerialize.py) keeps a copy where that
costs least; those that it does not keep are taken out again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from assay.compiler.autograd.partition import COPY, demands, exchange_names, viewed
from assay.compiler.autograd.rematerialization.recompute_cost import is_fused, is_measurable
from assay.compiler.ir.graph.calls import call_for
from assay.compiler.ir.graph.roles import Gradient, Program
from assay.compiler.ir.graph.trace import gives_memory_on


def add_copies(joint: Program) -> int:
    """Has generated kernels read copies of those results that a library computes and that eager does not keep. Returns
    the number of copies. Cost: linear in nodes."""
    pairs = zip(joint.signature.outputs, joint.returned, strict=True)
    returned = {viewed(n) for role, n in pairs if isinstance(n, fx.Node) and not isinstance(role, Gradient)}
    roots = {node for node in returned if node.op == "call_function" and not is_fused(node) and is_measurable(node)}
    if not roots:
        return 0
    before, wanted = demands(joint)
    roots -= {viewed(node) for node in wanted}
    found = [(node, readers) for root in roots for node in _seen(root) if (readers := _kernels(node, before))]
    for node, readers in found:
        with joint.module.graph.inserting_after(node):
            copy = call_for(node, torch.ops.aten.clone.default, node)
        copy.meta[COPY] = True
        exchange_names(node, copy)  # gradients of gradients know what is kept by the names that were recorded
        for reader in readers:
            reader.replace_input_with(node, copy)
    return len(found)


def _seen(root: fx.Node) -> Iterator[fx.Node]:
    """A value and its views, those that a list of them holds too."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node.meta.get("val"), torch.Tensor):
            yield node
        pending += [user for user in node.users if gives_memory_on(user)]


def _kernels(node: fx.Node, before: set[fx.Node]) -> list[fx.Node]:
    """The calls of forward that read a value element by element, or row by row."""
    users = (user for user in node.users if user.op == "call_function" and user in before)
    return [user for user in users if not gives_memory_on(user) and is_fused(user)]
