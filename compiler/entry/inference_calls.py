"""Graphs whose calls do something else in inference mode, which Dynamo switches off while it compiles.

    torch.set_grad_enabled(True); x * w     in inference mode the result requires no grad all the same
    x.data.add_(1)                          the version of `x` stays
    torch.func.grad(f)(x)                   the result is no inference tensor

Such a graph is compiled again, in inference mode, for the first call that is made there.
"""

from __future__ import annotations

import torch
from torch import fx

from assay.compiler.entry.graph_as_call import Compiled

READERS = ("_set_grad_enabled", "_increment_nesting", "_get_data_attr", "_enter_inference_mode")
"""The calls that inference mode makes other ones of, by the ends of their names."""


def depends_on_inference(gm: fx.GraphModule) -> bool:
    """Whether a graph, or one inside it, has a call that does something else in inference mode."""
    graphs = (one.graph for one in gm.modules() if isinstance(one, fx.GraphModule))
    names = (getattr(node.target, "__name__", "") for graph in graphs for node in graph.nodes)
    return any(name.endswith(READERS) for name in names)


def by_inference(outside: Compiled, inside: Compiled) -> Compiled:
    """A call that is `inside` in inference mode, and `outside` elsewhere. Cost: 0.1 us."""

    def call(*args: object) -> object:
        return (inside if torch.is_inference_mode_enabled() else outside)(*args)

    return call
