"""`order_of`: gradients of one order as they are run: where the graph finds what it takes, and how that has to lie."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import fx

from compiler.codegen.convention import laid_out_as, name_of, saved_names
from compiler.ir.again import Again
from compiler.ir.roles import GraphCall, Program, Saved
from compiler.runtime.higher_order import Order
from compiler.runtime.transfers import reload


def kept_by(forward: Program) -> dict[str, fx.Node]:
    """What a forward returns for backward, by the names of the values."""
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    return {role.of: node for role, node in pairs if isinstance(role, Saved) and isinstance(node, fx.Node)}


def order_of(forward: Program, again: Again, graph: GraphCall, recorded: GraphCall) -> Order:
    tensors, sizes = saved_names(forward)
    kept = kept_by(forward)
    placeholders = again.program.placeholders
    arguments: list[tuple[str, int]] = []
    layouts: list[Callable[[torch.Tensor], torch.Tensor] | None] = []
    for name, node in zip(again.read, placeholders, strict=False):
        place = name_of(Saved(name))
        arguments.append(("saved", tensors.index(place)) if place in tensors else ("size", sizes.index(place)))
        layouts.append(_layout(node.meta["val"], kept[name].meta["val"]))
    for index, node in enumerate(placeholders[len(again.read) :]):
        arguments.append(("tangent", index))
        layouts.append(laid_out_as(node.meta["val"]))
    return Order(graph, recorded, tuple(arguments), tuple(layouts), again.gradients, again.differentiable)


def _layout(expected: object, kept: object) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """What brings a kept value to the device and into the strides that it has where the graph was recorded; nothing
    where it has them."""
    if not isinstance(expected, torch.Tensor) or not isinstance(kept, torch.Tensor):
        return None
    laid_out = None if str(expected.stride()) == str(kept.stride()) else laid_out_as(expected)
    if kept.device == expected.device:
        return laid_out
    fetched = functools.partial(reload, device=expected.device)
    return fetched if laid_out is None else lambda value: laid_out(fetched(value))
