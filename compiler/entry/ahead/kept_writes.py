"""Writes of inputs that a graph without gradients makes itself, as its last calls.

    new = add(x, 1); return (new, y)    x is written      ->      new = add(x, 1); copy_(x, new); return (y,)

All other calls stay functional. Law: the program, run before and after, gives the same, inputs included.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx

from assay.compiler.autograd.partition import viewed
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import Mutation, Program, Shared, View, Written

aten = torch.ops.aten


def keep_writes(program: Program) -> Program:
    """The program with the writes of its inputs as calls of its graph. It is as it was where gradients flow through
    it, and where a result or another write reads an input as it was before."""
    pairs = dict(zip(program.signature.outputs, program.returned, strict=True))
    written = {role: node for role, node in pairs.items() if isinstance(role, Mutation)}
    if not written or not _may_be_kept(program, written):
        return program
    places = dict(zip(program.signature.inputs, program.placeholders, strict=True))
    output = next(iter(reversed(program.module.graph.nodes)))
    for role, node in written.items():
        with program.module.graph.inserting_before(output):
            call = program.module.graph.create_node(
                "call_function", aten.copy_.default, (places[role.of], node), {}, "copy_"
            )
        call.meta["val"] = places[role.of].meta["val"]
    kept = {role: node for role, node in pairs.items() if role not in written}
    set_returned(program.module, list(kept.values()))
    effects = tuple(Written(role.of, role.writes - 1) for role in written)
    signature = replace(program.signature, outputs=tuple(kept), effects=(*program.signature.effects, *effects))
    return Program(program.module, signature)


def _may_be_kept(program: Program, written: dict[Mutation, fx.Node | int | None]) -> bool:
    signature = program.signature
    is_early = any(isinstance(result, View) and result.is_early for result in signature.results)
    has_gradients = bool(signature.differentiable) or program.is_backward
    is_plain = all(
        isinstance(node, fx.Node) and viewed(node).op != "placeholder" and role.kind != "hidden"
        for role, node in written.items()
    )
    is_shared = any(isinstance(role, Shared) for role in signature.inputs)
    return is_plain and not (is_early or has_gradients or is_shared)
