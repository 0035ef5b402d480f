"""Tokens: the order of calls with effects, as values that an exported graph takes and returns.

    note(s); y = rec(x); return (y,)
->  with_effects = with_effects(token, note, s); getitem = with_effects[0]
    with_effects_1 = with_effects(getitem, rec, x); getitem_2 = with_effects_1[0]; getitem_3 = with_effects_1[1]
    return (getitem_2, getitem_3)

Effects of one kind follow one token. A token is an empty tensor.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.errors import ExportError
from assay.compiler.ir.graph.held_functions import is_any_inside
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import Program, Token
from assay.compiler.ir.typed_nodes import int_argument
from assay.compiler.torch_compat import effect_of


def with_tokens(program: Program, mode: FakeTensorMode) -> Program:
    """The program with a token, first of its inputs and of its outputs, for each kind of effect that its calls have.

    Raises: ExportError for an effect in a function that an operator is given, as in a branch: no token leads there.
    """
    graph = program.module.graph
    for node in graph.nodes:
        if is_any_inside(node, program.module, lambda inner: effect_of(inner.target) is not None):
            raise ExportError.because("effect_inside", operator=node.target)
    calls = [(node, effect_of(node.target)) for node in graph.nodes if node.op == "call_function"]
    kinds = tuple(dict.fromkeys(kind for _, kind in calls if kind is not None))
    if not kinds:
        return program
    first = program.placeholders[0] if program.placeholders else next(iter(graph.nodes))
    with mode:
        empty = torch.empty(0)
    last: dict[str, fx.Node] = {}
    for kind in kinds:
        with graph.inserting_before(first):
            last[kind] = graph.placeholder("token" if len(kinds) == 1 else f"token_{kind}")
        last[kind].meta["val"] = empty
    for call, effect in calls:
        if effect is not None:
            last[effect] = _follow(graph, call, last[effect])
    tokens = tuple(Token(kind) for kind in kinds)
    signature = program.signature
    signature = replace(signature, inputs=(*tokens, *signature.inputs), outputs=(*tokens, *signature.outputs))
    set_returned(program.module, [*last.values(), *program.returned])
    program.module.recompile()
    return Program(program.module, signature)


def _follow(graph: fx.Graph, call: fx.Node, token: fx.Node) -> fx.Node:
    """Makes a call with a token in its place. Returns the token after it."""
    value = call.meta.get("val")
    parts = value if isinstance(value, tuple) else (value,)
    with graph.inserting_before(call):
        arguments: tuple[Any, ...] = (token, call.target, *call.args)
        made = graph.call_function(with_effects, arguments, call.kwargs)
        made.meta = {**call.meta, "val": (token.meta["val"], *parts)}
        after = graph.call_function(operator.getitem, (made, 0))
        after.meta = {"val": token.meta["val"]}
        result = graph.call_function(operator.getitem, (made, 1))
        result.meta = {**call.meta}
    if isinstance(value, tuple):
        for part in list(call.users):
            part.args = (made, int_argument(part, 1) + 1)
    call.replace_all_uses_with(result)
    graph.erase_node(call)
    if not result.users:
        graph.erase_node(result)
    return after
