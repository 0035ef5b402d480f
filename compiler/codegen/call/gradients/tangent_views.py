"""Which gradients are views of a tangent, and how each is taken of the tangent itself."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from assay.compiler.codegen.call.source import is_tensor, name_of
from assay.compiler.ir.graph.roles import Gradient, InputRole, Program, Saved, Tangent
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.runtime.tangent_views import Of, TangentView

aten = torch.ops.aten
VIEWS: dict[object, Any] = {
    **{view: view for view in (
        aten.alias.default, aten.diagonal.default, aten.expand.default, aten.permute.default, aten.select.int,
        aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default, aten.squeeze.default, aten.squeeze.dim,
        aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unbind.int, aten.unsqueeze.default,
    )},
    aten.view.default: aten.reshape.default,
}  # fmt: skip
"""Views that every tensor of a size allows, each with the operator that gives it. The formula of a gradient is
`reshape` where its recording is `view`."""
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
"""What sizes are made by."""


def views_of_tangents(backward: Program, sizes: Sequence[str]) -> dict[int, tuple[Tangent, TangentView]]:
    """The gradients that are views of one tangent, by their positions among the outputs. `sizes` are the variables of
    the saved numbers, in their order."""
    roles = dict(zip(backward.placeholders, backward.signature.inputs, strict=True))
    order = {node: place for place, node in enumerate(backward.module.graph.nodes)}
    found: dict[int, tuple[Tangent, TangentView]] = {}
    for index, (role, node) in enumerate(zip(backward.signature.outputs, backward.returned, strict=True)):
        if not isinstance(role, Gradient) or not isinstance(node, fx.Node) or node in roles or not is_tensor(node):
            continue
        behind = sorted(_behind(node, roles), key=order.__getitem__)
        tangents = [of for each in behind if isinstance(of := roles.get(each), Tangent)]
        if len(tangents) == 1:
            found[index] = tangents[0], _view([each for each in behind if each not in roles], roles, sizes)
    return found


def _behind(node: fx.Node, roles: Mapping[fx.Node, InputRole]) -> set[fx.Node]:
    """All that a node follows from, itself too; nothing where that is more than views of tangents and sizes."""
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if each in found:
            continue
        if not (_is_given(each, roles[each]) if each in roles else _is_view(each)):
            return set()
        found.add(each)
        pending.extend(each.all_input_nodes)
    return found


def _is_given(node: fx.Node, role: InputRole) -> bool:
    """Whether an input is a size, or a tangent that is no wrapper."""
    value = node.meta["val"]
    if not isinstance(role, Tangent):
        return isinstance(value, (int, *SYMBOLIC))
    return isinstance(value, torch.Tensor) and not is_wrapper(value) and value.layout is torch.strided


def _is_view(node: fx.Node) -> bool:
    is_known = node.target in VIEWS or node.target is operator.getitem or node.target in ARITHMETIC
    return node.op == "call_function" and is_known and not node.kwargs


def _view(calls: Sequence[fx.Node], roles: Mapping[fx.Node, InputRole], sizes: Sequence[str]) -> TangentView:
    places = {call: Of("step", place) for place, call in enumerate(calls)}

    def argument(given: object) -> object:
        if isinstance(given, list | tuple):
            return tuple(map(argument, given))
        if not isinstance(given, fx.Node):
            return given
        role = roles.get(given)
        if isinstance(role, Saved):
            return Of("size", sizes.index(name_of(role)))
        return places[given] if role is None else Of("tangent", 0)

    return TangentView(tuple((VIEWS.get(call.target, call.target), tuple(map(argument, call.args))) for call in calls))
