"""Regions of `torch.utils.checkpoint`, recorded as they stand, each call marked as one to compute again.

    checkpoint(f, x)     ->     f(x), its nodes with meta["recompute"] and the region's number in meta["ac_graph_id"]

Torch records such a region by running the checkpoint itself, whose backward can run once only: gradients of gradients
would fail. A region with a policy of the user's own is recorded by torch, which alone knows what the policy says.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

_numbers = itertools.count(1 << 20)  # torch numbers its own from 1


def is_plain(region: object) -> bool:
    """Whether all of a region is computed again."""
    return isinstance(region, fx.GraphModule) and "_checkpoint_context_fn" not in region.meta


def run_region(region: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """What the region returns. `kwargs` are those of the checkpoint and of the region."""
    _, own = torch.ops.higher_order.tag_activation_checkpoint.divide_kwargs(kwargs)
    number = next(_numbers)
    for node in region.graph.nodes:
        node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        node.meta["ac_graph_id"] = number
    if own:
        return region(*args, **own)
    return fx.Interpreter(region).run(*args)
