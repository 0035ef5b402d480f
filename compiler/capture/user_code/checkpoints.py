"""Regions of `torch.utils.checkpoint`, recorded as they stand, each call marked as one to compute again.

    checkpoint(f, x)     ->     f(x), its nodes with meta["recompute"] and the region's number in meta["ac_graph_id"]

Torch records such a region by running the checkpoint itself, whose backward can run once only: gradients of gradients
would fail. A region with a policy of the user's own is recorded by torch, which alone knows what the policy says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from assay.compiler.errors import Unsupported
from assay.compiler.torch_compat import has_registered_effect

_numbers = itertools.count(1 << 20)  # torch numbers its own from 1


def is_plain(region: object) -> bool:
    """Whether all of a region is computed again."""
    return isinstance(region, fx.GraphModule) and "_checkpoint_context_fn" not in region.meta


def run_region(interpret: Callable[..., Any], region: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """What the region returns, as `interpret(region, *args)` does. `kwargs` are those of the checkpoint and of the
    region.

    Raises: Unsupported for a region with an operator that is registered as one with an effect: eager runs it again in
    backward, and no graph computes again what has an effect.
    """
    _check_effects(region)
    _, own = torch.ops.higher_order.tag_activation_checkpoint.divide_kwargs(kwargs)
    number = next(_numbers)
    for node in region.graph.nodes:
        node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        node.meta["ac_graph_id"] = number
    if own:
        return region(*args, **own)
    return interpret(region, *args)


def _check_effects(region: fx.GraphModule) -> None:
    for node in region.graph.nodes:
        target = getattr(node.target, "_opoverload", getattr(node.target, "default", node.target))
        if isinstance(target, torch._ops.OpOverload) and has_registered_effect(target):
            raise Unsupported(f"a checkpointed region calls {target}, whose effect comes again in backward")
