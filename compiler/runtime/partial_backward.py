"""Backward where no gradient flows back to some of the call's results: it computes what eager computes, reads what that
needs, and looks at no other saved tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.runtime.expected_inputs import ExpectedInputs, refuse_freed
from assay.compiler.runtime.leaf_hooks import spare_unreached
from assay.compiler.runtime.saved_values import saved_tensors
from assay.compiler.runtime.tangent_views import TangentView

LIMIT = 16
"""How many sets of results with gradients one call has backwards of its own for; beyond, the others count as zeros."""


@dataclass(frozen=True, slots=True)
class Part:
    """A backward for one set of given gradients.

    `arguments` are what the graph takes, each by its kind (a saved tensor, a saved size, a tangent) and its position
    among those of that kind; `inputs` is what those that are tensors are held to; `written` the positions of what has
    to have the version that forward noted; `gradients` says for each input of the forward which of the graph's values
    it gets, and from which tangents that follows, and `tensors` which of these inputs are no numbers. `wrappers` are
    the positions of the arguments that are wrappers, which are held to their form before. `views` are the graph's
    values that are views of a tangent, each with its position and that of the tangent.
    """

    graph: GraphCall
    arguments: tuple[tuple[str, int], ...]
    written: tuple[int, ...]
    gradients: tuple[tuple[int, frozenset[int]] | None, ...]
    tensors: tuple[int, ...]
    inputs: ExpectedInputs
    wrappers: frozenset[int] = frozenset()
    views: tuple[tuple[int, int, TangentView], ...] = ()

    def fitted(self, arguments: list[object]) -> list[object] | None:
        """The arguments as the graph takes them; None where it cannot take one of them."""
        places = [p for p, v in enumerate(arguments) if isinstance(v, torch.Tensor) and p not in self.wrappers]
        tensors: Any = [arguments[place] for place in places]
        if self.inputs.check(*tensors):
            return arguments
        found = self.inputs.fitted(*tensors)
        if found is None:
            return None
        self.inputs.look(*found)
        given = dict(zip(places, found, strict=True))
        return [given.get(place, value) for place, value in enumerate(arguments)]

    def taken(
        self, tangents: Sequence[torch.Tensor | None], arguments: Sequence[object], sizes: Sequence[Any]
    ) -> dict[int, torch.Tensor]:
        """The values of the graph that are views of tangents which were copied for it, taken of the tangents."""
        found: dict[int, torch.Tensor] = {}
        for place, index, view in self.views:
            own = tangents[index]
            if own is not None and arguments[self.arguments.index(("tangent", index))] is not own:
                found[place] = view(own, sizes)
        return found


@dataclass(slots=True)
class PartialBackward:
    """`make(given)` makes the part for those tangents; `layouts` bring each tangent into the strides of the graph's.
    `made` is told of each part that was made. `recorded` runs the backward operator by operator, for what no
    kernel takes; of that very backward it is None."""

    make: Callable[[frozenset[int]], Part]
    layouts: Sequence[Callable[[torch.Tensor], torch.Tensor]]
    zeros: Sequence[Callable[[Any], torch.Tensor]]
    check: Callable[[Any], None]
    results: dict[int, int]
    """The saved tensors whose versions forward noted, each with its position among these.

    They are those that the call returns. Where torch cannot unpack one by itself, they are all that others may write.
    """
    parts: dict[frozenset[int], Part] = field(default_factory=dict)
    made: Callable[[frozenset[int], Part], None] | None = None
    recorded: Callable[..., Sequence[object]] | None = None

    def __call__(self, ctx: Any, tangents: tuple[torch.Tensor | None, ...]) -> tuple[object, ...]:
        given = frozenset(index for index, tangent in enumerate(tangents) if tangent is not None)
        is_own = given in self.parts or len(self.parts) < LIMIT
        key = given if is_own else frozenset(range(len(tangents)))
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = self.make(key)
            if self.made is not None:
                self.made(key, part)
        if part.written:
            self.check([ctx.written[index] for index in part.written])
        saved = saved_tensors(ctx, {index for kind, index in part.arguments if kind == "saved"}, self.results)
        arguments: list[object] = []
        for kind, index in part.arguments:
            if kind == "saved":
                arguments.append(saved[index])
            elif kind == "size":
                arguments.append(ctx.sizes[index])
            else:
                tangent = tangents[index]
                arguments.append(
                    self.layouts[index](self.zeros[index](ctx.shapes[index]) if tangent is None else tangent)
                )
        del saved
        if self.recorded is not None:
            fitted = part.fitted(arguments)
            if fitted is None:
                return tuple(self.recorded(ctx, tangents))
            arguments = fitted
            del fitted
        else:
            refuse_freed(arguments)
        ctx.maybe_clear_saved_tensors()
        taken = part.taken(tangents, arguments, getattr(ctx, "sizes", ())) if part.views else {}
        values = part.graph(arguments)
        places = [made[0] if made is not None and made[1] & given else None for made in part.gradients]
        found = tuple(None if place is None else taken.get(place, values[place]) for place in places)
        spare_unreached(ctx, found, part.tensors)
        return found
