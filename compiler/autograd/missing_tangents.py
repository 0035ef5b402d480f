"""`without`: a backward for when no gradient flows back to some of the call's results.

Eager does not compute what follows from such results alone. A gradient of zeros is not the same: zero times an infinity
is not a number, and what backward would read for it may have been written since.

    a, b = x * w, x * 2;   b.sum().backward()
    backward(w, da, db) = da * w + db * 2        without da:  backward(db) = db * 2
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.ir.graph.calls import called
from assay.compiler.ir.graph.constant_zeros import ZEROS_OF, is_zeros
from assay.compiler.ir.graph.replacement import above_named_offsets, derive_from_operands, differing
from assay.compiler.ir.graph.roles import Program, Tangent
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, is_view, module_of
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.typed_nodes import nodes_argument

aten = torch.ops.aten

LINEAR = frozenset(
    "_fft_c2c _fft_c2r _fft_r2c _to_copy _unsafe_view bmm clone cumsum div flip gather getitem index index_select "
    "mean mm mul neg new_empty new_empty_strided new_zeros repeat roll sum tril triu zeros_like".split()
)
"""Operators that give zeros, or memory to be written, where the one operand that follows from a gradient is zeros.
Views are, too, and every operator that is named after what it is the backward of."""
PRODUCTS = frozenset({"mul", "mm", "bmm"})
"""Those that give zeros where any of their operands is zeros."""
SUMS = frozenset(
    "add cat copy index_add index_put scatter_add select_scatter slice_scatter as_strided_scatter "
    "diagonal_scatter stack sub where _unsafe_index_put".split()
)
"""Operators that give zeros where all operands are zeros."""


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
    undefined = _Removal.of(graph, inputs, missing).run()
    output = next(iter(reversed(graph.nodes)))
    output.args = ([None if node in undefined else node for node in output.args[0]],)
    eliminate_dead_nodes(graph)
    unread = [node for node in inputs if not node.users and not isinstance(node.meta.get("val"), SYMBOLIC)]
    for node in unread:  # sizes are read by layouts, too
        graph.erase_node(node)
    kept = tuple(role for node, role in inputs.items() if node not in unread)
    module = module_of(backward.module, graph)
    return Program(module, replace(backward.signature, inputs=kept))


@dataclass(slots=True)
class _Removal:
    """One walk over a graph, operands first. `follows` are the nodes that follow from a tangent, `undefined` those that
    follow from nothing else than missing ones; `stale` are those whose operands lie otherwise than recorded."""

    graph: fx.Graph
    follows: set[fx.Node]
    undefined: set[fx.Node]
    missing: Collection[Tangent]
    is_placed: set[fx.Node]
    stale: set[fx.Node] = field(default_factory=set)

    @staticmethod
    def of(graph: fx.Graph, inputs: Mapping[fx.Node, object], missing: Collection[Tangent]) -> _Removal:
        tangents = {node for node, role in inputs.items() if isinstance(role, Tangent)}
        undefined = {node for node in tangents if inputs[node] in missing}
        return _Removal(graph, tangents, undefined, missing, above_named_offsets(graph))

    def run(self) -> set[fx.Node]:
        """Takes what is undefined out of sums; returns the nodes that are undefined."""
        for node in self.graph.nodes:
            if node in self.stale:
                self.stale.update(self._derive(node))
            if node.op != "output" and not isinstance(node.meta.get("val"), SYMBOLIC):
                self._visit(node)
        return self.undefined

    def _visit(self, node: fx.Node) -> None:
        operands = [operand for operand in node.all_input_nodes if operand in self.follows]
        missed = [operand for operand in operands if operand in self.undefined]
        if not operands:
            if ZEROS_OF in node.meta and self.missing and node.meta[ZEROS_OF] <= {*self.missing}:
                self.follows.add(node)
                self.undefined.add(node)
            return
        self.follows.add(node)
        if missed and (len(missed) == len(operands) or _name(node) in PRODUCTS) and _is_undefined(node, self.undefined):
            self.undefined.add(node)
        elif missed:
            self._do_without(node, missed)

    def _do_without(self, node: fx.Node, missed: list[fx.Node]) -> None:
        other = _other_summand(node, missed)
        if other is not None and node in self.is_placed:
            other = self._placed_as(other, node)
        if other is None:
            _define(self.graph, node, missed)
            return
        self.follows.add(other)
        self.stale.update(node.users)
        node.replace_all_uses_with(other)

    def _derive(self, node: fx.Node) -> list[fx.Node]:
        """Derives a node anew: of copies in rows where it is no view of operands that lie as they do now."""
        try:
            return derive_from_operands(node)
        except (RuntimeError, ValueError):  # fakes of symbolic sizes raise the latter
            for operand in node.all_input_nodes:
                if isinstance(operand.meta.get("val"), torch.Tensor) and operand not in self.undefined:
                    node.replace_input_with(operand, self._in_rows(operand, node))
            return derive_from_operands(node)

    def _placed_as(self, other: fx.Node, node: fx.Node) -> fx.Node | None:
        """A copy of one summand, if it lies as the sum does, at the beginning of its memory; else None."""
        copy = self._in_rows(other, node)
        return copy if next(differing(node.meta["val"], copy.meta["val"]), None) is None else None

    def _in_rows(self, operand: fx.Node, reader: fx.Node) -> fx.Node:
        with self.graph.inserting_before(reader):
            copy = called(aten.clone.default, operand, memory_format=torch.contiguous_format)
        if operand in self.follows:
            self.follows.add(copy)
        return copy


def _is_undefined(node: fx.Node, undefined: set[fx.Node]) -> bool:
    """Whether what a node computes of undefined gradients is undefined, rather than a number made of zeros."""
    name = _name(node)
    given = [operand for operand in _summed(node) if isinstance(operand, fx.Node) and operand not in undefined]
    if name == "add" and any(map(_is_zero, given)):
        return False  # a formula gave the zeros, as that of x ** 0 does: they are the gradient by another result
    if name in SUMS:
        return all(operand in undefined or _is_zero(operand) for operand in _summed(node))
    return name in LINEAR or is_view(node) or "_backward" in name or bool(name == "masked_fill" and node.args[2] == 0)


def _summed(node: fx.Node) -> Iterable[object]:
    """The operands of a sum, conditions and indices apart."""
    if _name(node) in ("cat", "stack"):
        return nodes_argument(node, 0)
    if _name(node) in ("where", "copy"):
        return node.args[1:]
    values = [arg for arg in node.args if isinstance(arg, fx.Node) and _is_real(arg)]
    return values + [arg for arg in node.args[1:2] if isinstance(arg, (int, float)) and _name(node) in ("add", "sub")]


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _is_zero(operand: object) -> bool:
    """Whether an operand is the number zero, or a tensor made of it, or a view of that."""
    if not isinstance(operand, fx.Node):
        return bool(operand == 0)
    if is_view(operand):
        return _is_zero(operand.args[0])
    return is_zeros(operand)


def _other_summand(node: fx.Node, missing: list[fx.Node]) -> fx.Node | None:
    """What a sum of two is without the one that is missing, as eager has it: the other one, however it lies."""
    if _name(node) != "add" or len(node.args) != 2 or node.kwargs or len(missing) != 1:
        return None
    (other,) = [arg for arg in node.args if arg is not missing[0]] or [None]
    if not isinstance(other, fx.Node) or not isinstance(other.meta.get("val"), torch.Tensor):
        return None
    differs = differing(node.meta["val"], other.meta["val"], ("dtype", "device", "layout", "shape", "conj", "neg"))
    return other if next(differs, None) is None else None


def _define(graph: fx.Graph, node: fx.Node, operands: list[fx.Node]) -> None:
    """Gives a node that also follows from gradients that are given zeros for its undefined operands."""
    for operand in operands:
        value = operand.meta["val"]
        if not isinstance(value, FakeTensor):
            continue
        with graph.inserting_before(node):
            if all(isinstance(size, int) for size in value.shape):
                zeros = graph.call_function(aten.full.default, (list(value.shape), 0), _made_as(value))
                with value.fake_mode:
                    zeros.meta["val"] = torch.full(value.shape, 0, **_made_as(value))
            else:  # of what it would have been, whose numbers nobody reads
                zeros = called(aten.zeros_like.default, operand)
        node.replace_input_with(operand, zeros)


def _made_as(value: torch.Tensor) -> dict[str, Any]:
    return {"dtype": value.dtype, "device": value.device}


def _name(node: fx.Node) -> str:
    """`mul` for aten.mul.Tensor, `getitem` for the operator."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[1]
    return getattr(target, "__name__", "")
