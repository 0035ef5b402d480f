"""Tokens: the order of calls with effects, as values that a graph of somebody else's takes and returns.

    note(s); y = rec(x); return (y,)
->  with_effects = with_effects(token, note, s); getitem = with_effects[0]
    with_effects_1 = with_effects(getitem, rec, x); getitem_2 = with_effects_1[0]; getitem_3 = with_effects_1[1]
    return (getitem_2, getitem_3)

Effects of one kind follow one token, an empty tensor. It comes first in a forward and in a graph without gradients, and
last in a backward. Graphs that the compiler itself builds keep the order of calls without tokens.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import fx
from torch._functorch import config
from torch._higher_order_ops.effects import with_effects

from assay.compiler.capture.inputs import fake_mode_of
from assay.compiler.errors import ExportError
from assay.compiler.ir.graph.held_functions import is_any_inside
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import GraphCall, Program, Token
from assay.compiler.ir.graph.trace import module_of
from assay.compiler.ir.typed_nodes import int_argument
from assay.compiler.torch_compat import effect_of

Item = TypeVar("Item")
MAKE, SINK = torch.ops.prims._make_token.default, torch.ops.prims._sink_tokens.default


@dataclass(slots=True)
class TokenNames:
    """How many calls with tokens, and items of what they return, have names so far.

    Backward counts on from forward, as torch does. `renamed` has the names of values that are now such items.
    """

    calls: int = 0
    items: int = 0
    renamed: dict[str, str] = field(default_factory=dict)

    def call(self) -> str:
        self.calls += 1
        return f"with_effects_{self.calls - 1}" if self.calls > 1 else "with_effects"

    def item(self) -> str:
        self.items += 1
        return f"getitem_{self.items - 1}" if self.items > 1 else "getitem"


def check_effects_outside(program: Program) -> None:
    """Raises: ExportError for an effect in a function that an operator is given, as in a branch: no token leads
    there."""
    for node in program.module.graph.nodes:
        if is_any_inside(node, program.module, lambda inner: effect_of(inner.target) is not None):
            raise ExportError.because("effect_inside", operator=node.target)


def with_tokens(program: Program, names: TokenNames) -> Program:
    """The program with a token, as an input and as an output, for each kind of effect that its calls have."""
    kinds = [effect_of(node.target) for node in program.module.graph.nodes if node.op == "call_function"]
    tokens = tuple(Token(kind) for kind in dict.fromkeys(kinds) if kind is not None)
    if not tokens:
        return program
    signature, threading = program.signature, _Threading(names)
    threading.take(program, tokens)
    for node in program.module.graph.nodes:
        threading.add(node)
    graph = threading.graph
    last: tuple[fx.node.Argument, ...] = tuple(threading.last.values())
    returned = _joined(program, last, next(iter(reversed(graph.nodes))).args[0])
    inputs = _joined(program, tokens, signature.inputs)
    made = Program(
        module_of(program.module, graph),
        replace(signature, inputs=inputs, outputs=_joined(program, tokens, signature.outputs)),
    )
    set_returned(made.module, returned)
    return made


@dataclass(slots=True)
class _Threading:
    """A copy of a graph, while tokens are led through its calls. `last` are the tokens as they stand."""

    names: TokenNames
    graph: fx.Graph = field(default_factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    last: dict[str, fx.Node] = field(default_factory=dict)

    def take(self, program: Program, tokens: Sequence[Token]) -> None:
        """Adds the inputs, the tokens in their place among them."""
        mode = fake_mode_of(node.meta.get("val") for node in program.module.graph.nodes)
        if program.is_backward:
            self._copy(program.placeholders)
        for token in tokens:
            name = "tangents_token" if program.is_backward else "token"
            node = self.graph.placeholder(name if len(tokens) == 1 else f"{name}_{token.effect}")
            with mode or nullcontext():
                node.meta["val"] = torch.empty(0)
            self.last[token.effect] = node
        if not program.is_backward:
            self._copy(program.placeholders)

    def _copy(self, nodes: Sequence[fx.Node]) -> None:
        for node in nodes:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def add(self, node: fx.Node) -> None:
        effect = effect_of(node.target) if node.op == "call_function" else None
        if effect is not None:
            self.last[effect] = self._follow(node, self.last[effect])
        elif node not in self.copies:
            self._copy([node])

    def _follow(self, call: fx.Node, token: fx.Node) -> fx.Node:
        """A call with a token in the place of one without. Returns the token after it."""
        value, graph = call.meta.get("val"), self.graph
        parts = value if isinstance(value, tuple) else (value,)
        args, kwargs = fx.map_arg((call.args, call.kwargs), self.copies.__getitem__)
        given: tuple[Any, ...] = (token, call.target, *args)
        made = graph.create_node("call_function", with_effects, given, kwargs, self.names.call())
        made.meta = {**call.meta, "val": (token.meta["val"], *parts)}
        names = [self.names.item() for _ in range(1 + len(parts))]
        after = self._item(made, 0, names[0])
        after.meta = {"val": token.meta["val"]}
        readers = list(call.users) if isinstance(value, tuple) else [call] if call.users else []
        places = {node: 1 if node is call else int_argument(node, 1) + 1 for node in readers}
        for node, place in sorted(places.items(), key=lambda pair: pair[1]):
            self.copies[node] = item = self._item(made, place, names[place])
            item.meta = {**node.meta}
            self.names.renamed[node.name] = item.name
        return after

    def _item(self, made: fx.Node, place: int, name: str) -> fx.Node:
        return self.graph.create_node("call_function", operator.getitem, (made, place), {}, name)


def unlifted(program: Program) -> Program:
    """The program with tokens that its graph makes and drops itself, where torch's configuration asks for that."""
    tokens = [role for role in program.signature.inputs if isinstance(role, Token)]
    if not tokens or not config.unlift_effect_tokens:
        return program
    graph, signature = program.module.graph, program.signature
    last_input = program.placeholders[-1]
    for role, node in zip(signature.inputs, program.placeholders, strict=True):
        if isinstance(role, Token):
            with graph.inserting_after(last_input):
                made = graph.call_function(MAKE)
            made.meta = {**node.meta}
            node.replace_all_uses_with(made)
            graph.erase_node(node)
    sunk, left = _apart(program, program.returned, len(tokens))
    with graph.inserting_before(next(iter(reversed(graph.nodes)))):
        graph.call_function(SINK, (list(sunk),))
    set_returned(program.module, left)
    program.module.recompile()
    inputs = tuple(role for role in signature.inputs if not isinstance(role, Token))
    outputs = tuple(role for role in signature.outputs if not isinstance(role, Token))
    return Program(program.module, replace(signature, inputs=inputs, outputs=outputs))


def hiding_tokens(program: Program, run: GraphCall) -> GraphCall:
    """A built graph, called without its tokens."""
    count = sum(isinstance(role, Token) for role in program.signature.inputs)
    if not count:
        return run
    tokens: list[object] = [torch.empty(0)] * count

    def called(args: list[object]) -> Sequence[object]:
        given = list(_joined(program, tokens, args))
        args.clear()
        return _apart(program, run(given), count)[1]

    return called


def _joined(program: Program, tokens: Sequence[Item], others: Sequence[Item]) -> tuple[Item, ...]:
    return (*others, *tokens) if program.is_backward else (*tokens, *others)


def _apart(program: Program, values: Sequence[Item], count: int) -> tuple[Sequence[Item], Sequence[Item]]:
    """The tokens among what a graph returns, and the others."""
    if program.is_backward:
        return values[-count:], values[:-count]
    return values[:count], values[count:]
