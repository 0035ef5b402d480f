"""What a node of autograd saved: all of it, or what was not written since.

    saved_tensors(ctx, wanted, results)           the wanted ones; the others may have been written
    saved_unless_written(ctx, wanted, results)    all, with None for those that have been

`results` are the saved tensors whose versions the node noted itself, in `ctx.versions`. Each has its position there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils import _pytree as pytree

from assay.compiler.runtime.call import WRITTEN
from assay.compiler.torch_compat import unchecked, unpacked

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unpacking:
    """How the values that forward would keep are found in what it keeps where hooks on saved tensors are parts of the
    graphs.

    `tensors` has, for each value that forward would keep, what lays it out as the graphs expect, and where it is.
    Without a structure it is the value at a position among what is kept. With a structure it is what the hook makes of
    leaves in it. Each leaf is a position, or a constant in a tuple of its own.
    """

    hook: Callable[[Any], Tensor]
    tensors: tuple[tuple[Callable[[Tensor], Tensor], pytree.TreeSpec | None, tuple[Any, ...]], ...]
    sizes: tuple[int, ...]

    def reads(self, wanted: set[int], count: int) -> set[int]:
        """The positions, among the `count` saved tensors, of those that the wanted values are made of."""
        leaves = {leaf for index in wanted for leaf in self.tensors[index][2] if not isinstance(leaf, tuple)}
        return {leaf for leaf in leaves if leaf < count}

    def __call__(self, saved: Sequence[Tensor | None], sizes: Sizes) -> tuple[tuple[Tensor | None, ...], Sizes]:
        kept = (*saved, *sizes)
        found: list[Tensor | None] = []
        for laid_out, structure, leaves in self.tensors:
            values = [leaf[0] if isinstance(leaf, tuple) else kept[leaf] for leaf in leaves]
            if any(not isinstance(leaf, tuple) and kept[leaf] is None for leaf in leaves):
                found.append(None)
            elif structure is None:
                found.append(values[0])
            else:
                found.append(laid_out(self.hook(pytree.tree_unflatten(values, structure)).detach()))
        return tuple(found), tuple(sizes[index] for index in self.sizes)


def saved_tensors(ctx: Any, wanted: set[int], results: dict[int, int]) -> dict[int, torch.Tensor]:
    """The wanted ones of the saved tensors, which alone have to be as they were when they were saved.

    Raises: what autograd raises if one is not.
    """
    if not wanted:
        return {}
    try:
        return dict(enumerate(ctx.saved_tensors))
    except RuntimeError:
        found = {index: value for index in wanted if (value := _unwritten(ctx, index, results)) is not None}
        if len(found) < len(wanted):
            raise
        return found


def saved_unless_written(ctx: Any, wanted: Collection[int], results: Mapping[int, int]) -> list[torch.Tensor | None]:
    """The saved tensors; None for one that was written since, which must be none of the wanted ones.

    Raises: what autograd raises if one of those was.
    """
    try:
        return list(ctx.saved_tensors)
    except RuntimeError:
        found = [_unwritten(ctx, index, results) for index, _ in enumerate(ctx._raw_saved_tensors)]
        if any(found[index] is None for index in wanted):
            raise
        return found


def _unwritten(ctx: Any, index: int, results: Mapping[int, int]) -> torch.Tensor | None:
    """One saved tensor; None if it was written since. Autograd has no way to unpack one result of its own node."""
    packed = ctx._raw_saved_tensors[index]
    if index not in results:
        try:
            return unpacked(packed)
        except RuntimeError:
            return None
    noted = getattr(ctx, "versions", None)
    value = unchecked(packed)
    if value is None or packed.unpack_hook is not None:
        return value
    return value if noted is not None and value._version == noted[results[index]] else None


def root_as_taken(value: Tensor, edge: tuple[Any, int]) -> Tensor:
    """An input that a node has taken, if autograd still knows it as it was then."""
    now = get_gradient_edge(value) if value.requires_grad else None
    if now is None or now.node is not edge[0] or now.output_nr != edge[1]:
        raise RuntimeError(
            f"{WRITTEN}: [{value.type()} {list(value.shape)}] is another function of what it was made from"
        )
    return value


def detached(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()
