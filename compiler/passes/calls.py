"""New calls in a graph, with what is known of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx


def call_for(node: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
    """A call at the graph's insertion point that does part of what `node` does, and is told to come from where it
    does."""
    made = node.graph.call_function(target, args, kwargs)
    made.meta.update(node.meta)
    values = fx.node.map_arg((args, kwargs), lambda read: read.meta["val"])
    with node.meta["val"].fake_mode:
        made.meta["val"] = target(*values[0], **values[1])
    return made
