"""Tokens: the order of calls with effects, as values that a graph of somebody else's takes and returns.

    note(s); y = rec(x); return (y,)
->  with_effects = with_effects(token, note, s); getitem = with_effects[0]
    with_effects_1 = with_effects(getitem, rec, x); getitem_2 = with_effects_1[0]; getitem_3 = with_effects_1[1]
    return (getitem_2, getitem_3)

Effects of one kind follow one token, an empty tensor. It comes first in a forward and in a graph without gradients, and
last in a backward. A joint graph has both. Graphs that the compiler itself builds keep the order of calls without
tokens.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import fx
from torch._functorch import config
from torch._higher_order_ops.effects import with_effects

from assay.compiler.capture.inputs import fake_mode_of
from assay.compiler.errors import ExportError
from assay.compiler.ir.graph.held_functions import is_any_inside
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import GraphCall, InputRole, OutputRole, Program, Token
from assay.compiler.ir.graph.trace import IN_BACKWARD, module_of
from assay.compiler.ir.typed_nodes import int_argument, node_argument
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
    return _threaded(program, names, lambda node: Token(_effect_of(node), program.is_backward))


def with_tokens_of_both(joint: Program) -> Program:
    """The joint graph with tokens for forward's effects, which come first, and for backward's, which come last."""
    return _threaded(joint, TokenNames(), lambda node: Token(_effect_of(node), IN_BACKWARD in node.meta))


def _threaded(program: Program, names: TokenNames, token_of: Callable[[fx.Node], Token]) -> Program:
    calls = [node for node in program.module.graph.nodes if _effect_of(node)]
    tokens = tuple(dict.fromkeys(map(token_of, calls)))
    if not tokens:
        return program
    threading = _Threading(names, token_of)
    threading.take(program, tokens)
    for node in program.module.graph.nodes:
        threading.add(node)
    graph, signature = threading.graph, program.signature
    last = list[Any](threading.last.values())
    returned = _joined(tokens, last, next(iter(reversed(graph.nodes))).args[0])
    inputs: tuple[InputRole, ...] = _joined(tokens, tokens, signature.inputs)
    outputs: tuple[OutputRole, ...] = _joined(tokens, tokens, signature.outputs)
    made = Program(module_of(program.module, graph), replace(signature, inputs=inputs, outputs=outputs))
    set_returned(made.module, returned)
    return made


def _effect_of(node: fx.Node) -> str:
    """The kind of effect that a node has; "" for none."""
    return (effect_of(node.target) if node.op == "call_function" else None) or ""


@dataclass(slots=True)
class _Threading:
    """A copy of a graph, while tokens are led through its calls. `last` are the tokens as they stand."""

    names: TokenNames
    token_of: Callable[[fx.Node], Token]
    graph: fx.Graph = field(default_factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    last: dict[Token, fx.Node] = field(default_factory=dict)

    def take(self, program: Program, tokens: Sequence[Token]) -> None:
        """Adds the inputs, the tokens in their place among them."""
        mode = fake_mode_of(node.meta.get("val") for node in program.module.graph.nodes)
        inputs: tuple[Token | fx.Node, ...] = _joined(tokens, tokens, program.placeholders)
        for role in inputs:
            if isinstance(role, fx.Node):
                self._copy([role])
                continue
            name = "tangents_token" if role.in_backward else "token"
            is_alone = sum(token.in_backward is role.in_backward for token in tokens) == 1
            node = self.graph.placeholder(name if is_alone else f"{name}_{role.effect}")
            with mode or nullcontext():
                node.meta["val"] = torch.empty(0)
            self.last[role] = node

    def _copy(self, nodes: Sequence[fx.Node]) -> None:
        for node in nodes:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def add(self, node: fx.Node) -> None:
        if _effect_of(node):
            token = self.token_of(node)
            self.last[token] = self._follow(node, self.last[token])
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
    roles = [role for role in program.signature.inputs if isinstance(role, Token)]
    if not roles:
        return run
    tokens: list[object] = [torch.empty(0)] * len(roles)

    def called(args: list[object]) -> Sequence[object]:
        given = list(_joined(roles, tokens, args))
        args.clear()
        return _apart(program, run(given), len(roles))[1]

    return called


def without_tokens(module: fx.GraphModule) -> fx.GraphModule:
    """A graph whose calls with tokens are plain calls. Its inputs and outputs are as they were; no token is read."""
    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    for node in module.graph.nodes:
        call = node.args[0] if node.target is operator.getitem else None
        if node.target is with_effects:
            _, target, *given = fx.map_arg(node.args, lambda arg: copies.get(arg, arg))
            copies[node] = made = graph.call_function(target, tuple(given), fx.map_arg(node.kwargs, copies.__getitem__))
            made.meta = {**node.meta, "val": _value_of_call(node)}
        elif isinstance(call, fx.Node) and call.target is with_effects:
            copies[node] = _item_of_call(graph, node, call, copies)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(module, graph)


def _value_of_call(node: fx.Node) -> Any:
    """What a call with a token returns beside it."""
    _, *parts = node.meta["val"]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _item_of_call(graph: fx.Graph, node: fx.Node, call: fx.Node, copies: dict[fx.Node, Any]) -> Any:
    """What stands for an item of what a call with a token returns: of the token behind it, the one before."""
    place = int_argument(node, 1)
    if not place:
        return copies[node_argument(call, 0)]
    if len(call.meta["val"]) == 2:
        return copies[call]
    made = graph.call_function(operator.getitem, (copies[call], place - 1))
    made.meta = {**node.meta}
    return made


def _joined(roles: Sequence[object], tokens: Sequence[Item], others: Sequence[Item]) -> tuple[Item, ...]:
    """Tokens, whose roles these are, and others, in the order of a graph."""
    after = tuple(token for role, token in zip(roles, tokens, strict=True) if cast(Token, role).in_backward)
    before = tuple(token for role, token in zip(roles, tokens, strict=True) if not cast(Token, role).in_backward)
    return (*before, *others, *after)


def _apart(program: Program, values: Sequence[Item], count: int) -> tuple[Sequence[Item], Sequence[Item]]:
    """The tokens among what a graph returns, and the others."""
    if program.is_backward:
        return values[-count:], values[:-count]
    return values[:count], values[count:]
