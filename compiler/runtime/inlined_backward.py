"""A backward as torch's own compiled autograd takes it in: as calls of ATen, which Dynamo records with all around them.

    backward(ctx, tangent)    while Dynamo records    ->    graph(*saved, *sizes, tangent), inlined

What no such graph stands for runs as it is, which ends the graph that Dynamo records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from assay.compiler.runtime.partial_backward import Part

KINDS = ("saved", "size", "tangent")


@dataclass(slots=True)
class _Inlined:
    """The graph, and what it is given and returns. Dynamo reads these once they are there."""

    graph: fx.GraphModule | None = None
    arguments: tuple[tuple[str, int], ...] = ()
    gradients: tuple[int | None, ...] = ()


def inlined_backward(part_of: Callable[[frozenset[int]], tuple[Part, fx.GraphModule]]) -> Callable[..., Any]:
    """What Dynamo inlines in the place of a backward. Where it cannot, the graph that it records ends.

    `part_of` records the backward operator by operator, for the tangents at the positions that are given.
    """
    inlined = _Inlined()

    @torch._dynamo.assume_constant_result
    def is_made(given: tuple[bool, ...]) -> bool:
        part, graph = part_of(frozenset(place for place, is_given in enumerate(given) if is_given))
        inlined.graph = fx.GraphModule(graph, graph.graph)  # its text is there, and not written when it is first called
        inlined.arguments = part.arguments
        inlined.gradients = tuple(None if made is None else made[0] for made in part.gradients)
        return not part.written and not part.wrappers and {kind for kind, _ in part.arguments} <= {*KINDS}

    def gradients(ctx: Any, tangents: tuple[torch.Tensor | None, ...]) -> Any:
        if not is_made(tuple([tangent is not None for tangent in tangents])):
            torch._dynamo.graph_break()
        saved, values = ctx.saved_tensors, []
        for kind, index in inlined.arguments:
            if kind == "saved":
                values.append(saved[index])
            else:
                values.append(ctx.sizes[index] if kind == "size" else tangents[index])
        found = inlined.graph(*values)  # type: ignore[misc]
        return tuple([None if place is None else found[place] for place in inlined.gradients])

    return gradients
