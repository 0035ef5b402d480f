"""`without`: a backward for when no gradient flows back to some of the call's results.

Eager does not compute what follows from such results alone. A gradient of zeros is not the same: zero times an infinity
is not a number, and what backward would read for it may have been written since.

    a, b = x * w, x * 2;   b.sum().backward()
    backward(w, da, db) = da * w + db * 2        without da:  backward(db) = db * 2
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from compiler.ir.replacement import differing, names_offset, replace_node
from compiler.ir.roles import Program, Tangent
from compiler.ir.strides import SYMBOLIC
from compiler.ir.trace import eliminate_dead_nodes, is_view, module_of

aten = torch.ops.aten

LINEAR = frozenset(
    "_fft_c2c _fft_c2r _fft_r2c _to_copy _unsafe_view bmm clone cumsum div flip gather getitem index index_select "
    "mean mm mul neg repeat roll sum tril triu".split()
)
"""Operators that give zeros where the one operand that follows from a gradient is zeros. Views are, too, and every
operator that is named after what it is the backward of."""
SUMS = frozenset(
    "add cat copy index_add index_put scatter_add select_scatter slice_scatter as_strided_scatter "
    "diagonal_scatter stack sub where _unsafe_index_put".split()
)
"""Operators that give zeros where all operands are zeros."""
ZEROS = frozenset("new_zeros zeros zeros_like".split())


def unwritten(backward: Program) -> Program:
    """A copy that writes in place leave functional, for `without`; of one tangent nothing is ever left out."""
    tangents = [role for role in backward.signature.inputs if isinstance(role, Tangent)]
    return without(backward, ()) if len(tangents) > 1 else backward


def copied(program: Program) -> Program:
    """A program of its own, which writes in place leave functional."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(program.module.graph, {}))
    return Program(fx.GraphModule(program.module, graph, class_name="Program"), program.signature)


def without(backward: Program, missing: Collection[Tangent]) -> Program:
    """The backward in which the tangents `missing` are undefined; it takes of the inputs those that it still reads.

    Cost: linear in the backward's nodes.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    returned: Any = graph.graph_copy(backward.module.graph, copies)
    inputs = {copies[node]: role for role, node in zip(backward.signature.inputs, backward.placeholders, strict=True)}
    graph.output(returned)
    follows = {node for node, role in inputs.items() if isinstance(role, Tangent)}
    undefined = {node for node, role in inputs.items() if role in missing}
    for node in graph.nodes:
        operands = [operand for operand in node.all_input_nodes if operand in follows]
        if not operands or node.op == "output" or isinstance(node.meta.get("val"), SYMBOLIC):
            continue
        follows.add(node)
        if undefined.issuperset(operands) and _is_undefined(node, undefined):
            undefined.add(node)
        elif undefined & set(operands):
            _define(graph, node, [operand for operand in operands if operand in undefined])
    output = next(iter(reversed(graph.nodes)))
    output.args = ([None if node in undefined else node for node in output.args[0]],)
    eliminate_dead_nodes(graph)
    unread = [node for node in inputs if not node.users and not isinstance(node.meta.get("val"), SYMBOLIC)]
    for node in unread:  # sizes are read by layouts, too
        graph.erase_node(node)
    kept = tuple(role for node, role in inputs.items() if node not in unread)
    module = module_of(backward.module, graph)
    return Program(module, replace(backward.signature, inputs=kept))


def _is_undefined(node: fx.Node, undefined: set[fx.Node]) -> bool:
    """Whether what a node computes of undefined gradients is undefined, rather than a number made of zeros."""
    name = _name(node)
    if name in SUMS:
        return all(operand in undefined or _is_zero(operand) for operand in _summed(node))
    return name in LINEAR or is_view(node) or "_backward" in name or bool(name == "masked_fill" and node.args[2] == 0)


def _summed(node: fx.Node) -> Iterable[object]:
    """The operands of a sum, conditions and indices apart."""
    if _name(node) in ("cat", "stack"):
        return node.args[0]  # type: ignore[return-value]
    if _name(node) == "where":
        return node.args[1:]
    values = [arg for arg in node.args if isinstance(arg, fx.Node) and _is_real(arg)]
    return values + [arg for arg in node.args[1:2] if isinstance(arg, (int, float)) and _name(node) in ("add", "sub")]


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _is_zero(operand: object) -> bool:
    """Whether an operand is the number zero, or a tensor made of it."""
    if not isinstance(operand, fx.Node):
        return bool(operand == 0)
    name = _name(operand)
    if name in ("full", "full_like", "new_full", "scalar_tensor"):
        return bool(operand.args[-1] == 0)
    return name in ZEROS


def _define(graph: fx.Graph, node: fx.Node, operands: list[fx.Node]) -> None:
    """Makes a node that also follows from gradients that are given do without its undefined operands."""
    if _name(node) == "add" and len(node.args) == 2 and not node.kwargs and len(operands) == 1:
        (other,) = [arg for arg in node.args if arg is not operands[0]] or [None]
        if isinstance(other, fx.Node) and _may_stand_for(other, node):
            replace_node(node, other)
            return
    for operand in operands:
        value = operand.meta["val"]
        if isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape):
            with graph.inserting_before(node):
                zeros = graph.call_function(aten.full.default, (list(value.shape), 0), _made_as(value))
            with value.fake_mode:  # type: ignore[attr-defined]
                zeros.meta["val"] = torch.full(value.shape, 0, **_made_as(value))
            node.replace_input_with(operand, zeros)


def _made_as(value: torch.Tensor) -> dict[str, Any]:
    return {"dtype": value.dtype, "device": value.device}


def _may_stand_for(other: fx.Node, node: fx.Node) -> bool:
    """Whether a sum without its undefined operand is the other one, which may lie elsewhere in its memory."""
    found = set(differing(other.meta.get("val"), node.meta.get("val")))
    return not found or (found == {"offset"} and not names_offset(node))


def _name(node: fx.Node) -> str:
    """`mul` for aten.mul.Tensor, `getitem` for the operator."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[1]
    return getattr(target, "__name__", "")
