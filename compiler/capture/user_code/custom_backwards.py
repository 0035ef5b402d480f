"""`in_its_callers_mode`: the backward of a user's `autograd.Function`, recorded so that it has gradients itself.

Dynamo traces such a backward with gradients off and writes that into its graph: under `create_graph=True`, where eager
runs it with gradients on, what it computes would be constant.

    set_grad_enabled(False); y = g * x; set_grad_enabled(True); return y     ->     y = g * x; return y
"""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch import fx

from assay.compiler.ir.graph.trace import READS_STASHED

SWITCH = torch._C._set_grad_enabled


def in_its_callers_mode(backward: fx.GraphModule) -> fx.GraphModule:
    """A copy without the switches around all of it; switches of the user's own stay."""
    nodes = [node for node in backward.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    if len(nodes) < 2 or not (_switches(nodes[0], False) and _switches(nodes[-1], True)):
        return backward
    made = copy.copy(backward)
    made.graph = copy.deepcopy(backward.graph)
    calls = [node for node in made.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    for node in (calls[-1], calls[0]):
        made.graph.erase_node(node)
    made.recompile()
    return made


def mark_reads(forward: fx.GraphModule, backward: fx.GraphModule, saved: Collection[int]) -> None:
    """Marks what backward computes from values that forward has kept as attributes of the context, and not by
    `save_for_backward`, which gave it those numbered `saved`: of attributes autograd knows no version.
    """
    _, kept = next(iter(reversed(forward.graph.nodes))).args[0]
    given = [node for node in backward.graph.nodes if node.op == "placeholder"]
    places = dict(enumerate(given[len(given) - len(kept) :]))
    checked = {places[index] for index in saved}
    stashed = set(places.values()) - checked
    for node in backward.graph.nodes:
        read = set(node.all_input_nodes)
        if read & stashed and not read & checked:
            node.meta["custom"] = {**node.meta.get("custom", {}), READS_STASHED: True}


def _switches(node: fx.Node, to: bool) -> bool:
    return node.target is SWITCH and node.args == (to,) and not node.users
