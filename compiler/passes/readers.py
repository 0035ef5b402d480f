"""Who reads a value's memory: the users of the value, of its views, and of whatever may be the same memory."""

from __future__ import annotations

import operator
from contextlib import nullcontext

import torch
from torch import fx

from assay.compiler.ir.tensors.in_place import after, part, private, window
from assay.compiler.ir.typed_nodes import function_of, value_of
from assay.compiler.ops.registry import OPERATORS, Kind

FRESH = (Kind.pointwise, Kind.reduction, Kind.scan, Kind.indexing, Kind.contraction, Kind.creation)
"""Operators of these kinds give memory of their own, if their schema says nothing else."""
SOMETIMES_THE_SAME = ("aten.to.dtype",)
SIZES = {"aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel", "aten.sym_storage_offset"}


def is_view(node: fx.Node) -> bool:
    """Whether a call only gives its first argument's memory, or a part of it, another name."""
    if node.target is operator.getitem or node.target in (after, private, part, window):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def may_share(node: fx.Node) -> bool:
    """Whether what a call returns may be memory of its arguments. What is not known may be."""
    target = node.target
    if is_view(node):
        return True
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target is not torch.ops.higher_order.auto_functionalized_v2
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(value_of(node), torch.Tensor)
    if any(returned.alias_info is not None for returned in target._schema.returns):
        return True
    return target.namespace in ("aten", "prims") and not _is_fresh(target) and not _returns_no_tensor(target)


def _returns_no_tensor(target: torch._ops.OpOverload) -> bool:
    return not any("Tensor" in str(returned.type) for returned in target._schema.returns)


def _is_fresh(target: torch._ops.OpOverload) -> bool:
    """Whether the operator always makes new memory. A functional operator that has a form in place is one that does."""
    name = str(target).removesuffix(".default")
    found = OPERATORS.get(name)
    if found is not None and found.kind is not Kind.composite:
        return found.kind in FRESH and name not in SOMETIMES_THE_SAME
    return in_place_form(target) is not None or name.endswith("_scatter")


def in_place_form(target: object) -> torch._ops.OpOverload | None:
    """The overload that writes its first argument: `aten.index_put` gives `aten.index_put_`."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, f"{target._schema.name.removeprefix('aten::')}_", None)
    form = getattr(packet, target._overloadname, None)
    if not isinstance(form, torch._ops.OpOverload) or form._schema.arguments[0].alias_info is None:
        return None
    names = [[argument.name for argument in each._schema.arguments] for each in (form, target)]
    return form if names[0] == names[1] else None


def owns_memory(node: fx.Node) -> bool:
    """Whether a node is a tensor made by a call, in memory of its own with a place to each element."""
    value = value_of(node)
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    made = node.args[0] if node.target is operator.getitem else node
    if not isinstance(made, fx.Node) or made.op != "call_function" or may_share(made):
        return False
    storage = storage_of(node)
    return is_dense(value) and all(storage_of(argument) != storage for argument in made.all_input_nodes)


def storage_of(node: fx.Node) -> int | None:
    """Which memory a node had when it was recorded."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata


def is_dense(value: torch.Tensor) -> bool:
    """Whether the elements fill their memory, without gaps or overlaps, in some order of the dimensions."""
    return _fills_memory(value) if _is_symbolic(value) else bool(torch.ops.aten.is_non_overlapping_and_dense(value))


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))


def _fills_memory(value: torch.Tensor) -> bool:
    """For symbolic sizes: in some order of the dimensions, each stride is the product of the sizes within it."""
    expected: int | torch.SymInt = 1
    left = list(range(value.dim()))
    while left:
        found = next((dim for dim in reversed(left) if _is_same(value.stride(dim), expected)), None)
        if found is None:
            return False
        left.remove(found)
        expected = expected * value.shape[found]
    return True


def _is_same(x: int | torch.SymInt, y: int | torch.SymInt) -> bool:
    """Whether two sizes are equal, without a guard on symbols."""
    return expression(x) == expression(y)


def expression(size: int | torch.SymInt) -> object:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def has_same_layout(a: object, b: object, strides: bool) -> bool:
    """Whether two tensors have one dtype and size, and the same strides where these count."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.dim() != b.dim():
        return False
    pairs = [*zip(a.shape, b.shape, strict=True), *(zip(a.stride(), b.stride(), strict=True) if strides else ())]
    return all(_is_same(x, y) for x, y in pairs)


def ways_back(made: fx.Node, place: torch.Tensor, whole: torch.Tensor) -> tuple[list[fx.Node], bool]:
    """The views of `made` that are `whole` again if `made` lies where `place` does, which is a view of `whole`; and
    whether `made` has no other use.

        place = t(whole); made = slice_scatter(place, ...); back = t(made)

    Equal size, strides and offset in one memory are equal tensors, so replaying the views is a proof.
    """
    found: list[fx.Node] = []
    is_all = True
    for user in made.users:
        if not _is_replayable(user):
            is_all = False
            continue
        view = _replayed(user, place)
        if view is not None and has_same_layout(view, whole, True) and view.storage_offset() == whole.storage_offset():
            found.append(user)
            continue
        inner, is_covered = ways_back(user, view, whole) if view is not None else ([], False)
        found += inner
        is_all = is_all and is_covered
    return found, is_all


def _is_replayable(node: fx.Node) -> bool:
    is_plain = isinstance(node.target, torch._ops.OpOverload) and node.target not in (
        torch.ops.aten.as_strided.default,
    )
    return is_plain and is_view(node) and len(node.all_input_nodes) == 1 and isinstance(value_of(node), torch.Tensor)


def _replayed(node: fx.Node, place: torch.Tensor) -> torch.Tensor | None:
    """The view of another tensor; None where that one's strides allow none."""
    mode = getattr(place, "fake_mode", None)
    with mode if mode is not None else nullcontext():
        try:
            made: torch.Tensor = function_of(node)(place, *node.args[1:], **node.kwargs)
        except (RuntimeError, ValueError):
            return None
    return made


def whole_of(node: fx.Node) -> fx.Node:
    """The value that a node is, behind views that hold all of its elements."""
    return chain_of(node)[0]


def chain_of(node: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
    """The value behind views that hold all of its elements, and these views, from it on."""
    views: list[fx.Node] = []
    while node.op == "call_function" and node.target not in (operator.getitem, after, private) and is_view(node):
        source = node.args[0]
        if not isinstance(source, fx.Node) or not _has_all(source, node):
            break
        views.append(node)
        node = source
    return node, views[::-1]


def _has_all(source: fx.Node, view: fx.Node) -> bool:
    """Whether a view has as many elements as its source, of the same dtype, and no element twice."""
    a, b = value_of(source), value_of(view)
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dtype != b.dtype:
        return False
    return _is_same(a.numel(), b.numel()) and is_dense(a) and is_dense(b)


def eliminate_unused(node: fx.Node) -> None:
    """Removes the views of a node that nobody uses."""
    for user in list(node.users):
        if is_view(user):
            eliminate_unused(user)
            if not user.users:
                node.graph.erase_node(user)


def is_generated(node: fx.Node) -> bool:
    """Whether the operator that makes a value has a rule to generate it by."""
    made = node.args[0] if node.target is operator.getitem else node
    found = OPERATORS.get(str(made.target).removesuffix(".default")) if isinstance(made, fx.Node) else None
    return found is not None and found.rule is not None


def names_of(value: fx.Node) -> set[fx.Node]:
    """The value and every node that may be the same memory."""
    found, pending = {value}, [value]
    while pending:
        node = pending.pop()
        for user in node.users:
            if user not in found and _may_be_named(user, node):
                found.add(user)
                pending.append(user)
    return found


def _may_be_named(user: fx.Node, node: fx.Node) -> bool:
    if is_view(user):
        return user.args[0] is node
    return may_share(user) or storage_of(user) == storage_of(node) is not None


def readers_of(names: set[fx.Node]) -> list[fx.Node]:
    """The nodes that look at the elements of any of these, in no order."""
    users = {user: None for name in names for user in name.users if not (user in names and is_view(user))}
    return [
        user for user in users if user.target is not after and str(user.target).removesuffix(".default") not in SIZES
    ]
