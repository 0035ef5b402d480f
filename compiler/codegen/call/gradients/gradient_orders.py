"""`order_of`: gradients of one order as they are run: where the graph finds what it takes, and how that has to lie."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from assay.compiler.codegen.call.gradients.forward_half import (
    root_of,
    roots_that_are_written,
    saved_as_written,
    saved_names,
)
from assay.compiler.codegen.call.source import name_of
from assay.compiler.ir.graph.backward.derivative_path import Again
from assay.compiler.ir.graph.backward.packed_values import Packed
from assay.compiler.ir.graph.roles import GraphCall, Program, Saved
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.runtime.call import laid_out_as
from assay.compiler.runtime.higher_order import Order
from assay.compiler.runtime.saved_values import Unpacking
from assay.compiler.runtime.transfers import reload


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
    read = {root_of(kept[name]) for name in again.read}
    checked = enumerate(saved_as_written(forward))
    written = tuple(index for index, of in checked if roots_that_are_written(forward, of) & read)
    return Order(graph, recorded, tuple(arguments), tuple(layouts), written, again.gradients, again.differentiable)


def unpacking_of(
    plain: Program, forward: Program, made: Sequence[Packed], hook: Callable[[Any], torch.Tensor]
) -> Unpacking:
    """How what a plain forward keeps is found in what the same one keeps that packs some of it."""
    tensors, sizes = saved_names(forward)
    places = {name: place for place, name in enumerate([*tensors, *sizes])}
    packed = {each.of: each for each in made}
    entries: list[tuple[Callable[[torch.Tensor], torch.Tensor], pytree.TreeSpec | None, tuple[Any, ...]]] = []
    for name, node in kept_by(plain).items():
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            continue
        if name not in packed:
            entries.append((laid_out_as(value), None, (places[name_of(Saved(name))],)))
            continue
        roles = iter(packed[name].roles)
        is_computed = (isinstance(leaf, (torch.Tensor, *SYMBOLIC)) for leaf in packed[name].leaves)
        pairs = zip(packed[name].leaves, is_computed, strict=True)
        leaves = tuple(places[name_of(next(roles))] if computed else (leaf,) for leaf, computed in pairs)
        entries.append((laid_out_as(value), packed[name].structure, leaves))
    _, own = saved_names(plain)
    return Unpacking(hook, tuple(entries), tuple(sizes.index(size) for size in own))


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
