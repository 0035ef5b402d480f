"""Writes of inputs that a graph makes itself, as its last calls.

    new = add(x, 1); return (new, y)    x is written      ->      new = add(x, 1); copy_(x, new); return (y,)

All other calls stay functional. Law: the program, run before and after, gives the same, inputs included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import fx

from assay.compiler.autograd.partition import viewed
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import (
    CallInput,
    Input,
    Mutation,
    OutputRole,
    Program,
    Restride,
    Saved,
    Shared,
    Shown,
    Signature,
    UserOutput,
    View,
    Written,
)
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers

aten = torch.ops.aten


def keep_writes(program: Program) -> Program:
    """The program with the writes of its inputs as calls of its graph, where autograd has no part in them."""
    pairs = dict(zip(program.signature.outputs, program.returned, strict=True))
    written = {role: node for role, node in pairs.items() if isinstance(role, Mutation) and isinstance(node, fx.Node)}
    kept = {role: node for role, node in written.items() if _may_be_kept(program, role, node)}
    places = dict(zip(program.signature.inputs, program.placeholders, strict=True))
    if not kept:
        return program
    calls = {role.of: _add_write(program.module.graph, places[role.of], node) for role, node in kept.items()}
    shown = {
        index: calls.get(made.of) for index, made in enumerate(program.signature.results) if isinstance(made, Input)
    }
    left = {role: _shown(role, shown) or node for role, node in pairs.items() if role not in kept}
    set_returned(program.module, list(left.values()))
    effects = tuple(Written(role.of, role.writes - 1) for role in kept if not isinstance(role.of, Shared))
    signature = replace(program.signature, outputs=tuple(left), effects=(*program.signature.effects, *effects))
    return Program(program.module, signature)


def _shown(role: OutputRole, calls: Mapping[int, fx.Node | None]) -> fx.Node | None:
    """The write that gives a result: the input itself."""
    return calls.get(role.of.index) if isinstance(role, Shown) and isinstance(role.of, UserOutput) else None


def _add_write(graph: fx.Graph, place: fx.Node, value: fx.Node) -> fx.Node:
    """The last call of a graph: it writes a value over an input. It is of the line that computed the value."""
    output = next(iter(reversed(graph.nodes)))
    with graph.inserting_before(output):
        call = graph.create_node("call_function", aten.copy_.default, (place, value), {}, "copy_")
    call.meta = {**value.meta, "val": place.meta["val"]}
    return call


def _may_be_kept(program: Program, role: Mutation, value: fx.Node) -> bool:
    """Whether the graph itself may make a write.

    Autograd must have no part in it. No wrapper, memory that inputs share, or changed strides may stand between the
    graph and the caller's tensor. What else the graph returns must not change with the input. Backward must not be
    given the new value: eager would have saved the caller's tensor, whose later writes have to be noticed. Writes that
    are hidden from autograd stay behind a graph with gradients, as in torch.
    """
    signature = program.signature
    if role in signature.differentiable or program.is_backward or has_wrappers(program):
        return False
    if role.kind == "hidden" and signature.differentiable:
        return False
    if isinstance(role.of, Shared) or any(isinstance(one, Shared) for one in signature.inputs):
        return False
    if _is_looked_at_early(signature, role.of):
        return False
    places = dict(zip(program.placeholders, signature.inputs, strict=True))
    returned = [(one, node) for one, node in zip(signature.outputs, program.returned, strict=True)
                if isinstance(node, fx.Node) and not isinstance(one, Shown)]  # fmt: skip
    read = {places.get(viewed(node)) for _, node in returned}
    saved = {viewed(node) for one, node in returned if isinstance(one, Saved)}
    return role.of not in read and viewed(value).op != "placeholder" and viewed(value) not in saved


def _is_looked_at_early(signature: Signature, of: CallInput) -> bool:
    """Whether something looks at inputs, or changes the strides of this one, between the graph and the writes."""
    early = any(isinstance(result, View) and result.is_early for result in signature.results)
    return early or any(isinstance(effect, Restride) and effect.of == of for effect in signature.effects)
