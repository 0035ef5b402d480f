"""The border of a graph with wrappers (`ir/tensors/wrappers.py`): what is built knows plain tensors alone.

    def graph(args):
        given = [args[0].a, args[0].b, args[1]]
        args.clear()
        made = inside(given)
        wrapper = make_TwoTensor({"a": made[0], "b": made[1]}, None, size, stride)
        return (wrapper,)

An inner tensor that is returned as it is given is the very object, as it is in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from assay.compiler.codegen.call.source import Source
from assay.compiler.codegen.host import load
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import GraphCall, Inner, InputRole, OutputRole, Program, Size
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, module_of
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers, inner_nodes, makes_wrapper
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensor, is_ragged, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument, value_of

Build = Callable[[Program], GraphCall]
READ_OFF = {torch.ops.aten.sym_size.int: "size", torch.ops.aten.sym_stride.int: "stride"}
"""The calls that read a number off a wrapper, and the methods that do."""


def bordered(build: Build, returns_given: bool = False) -> Build:
    """A builder of graphs with wrappers, by one that builds graphs of plain tensors. With `returns_given` these return
    what is given as well, where it is part of a result, as torch's do for a caller's own compiler."""

    def build_graph(program: Program) -> GraphCall:
        if not has_wrappers(program):
            return build(program)
        border = Border.of(program, returns_given)
        return border.load(build(border.inside))

    return build_graph


@dataclass(frozen=True, slots=True)
class Border:
    """A graph with wrappers as one without, `inside`, and the text around it.

    `outside` are the nodes that are read off inputs. `taken` are the inputs of the inside, `computed` its outputs.
    """

    program: Program
    inside: Program
    outside: frozenset[fx.Node]
    taken: tuple[fx.Node, ...]
    computed: tuple[fx.Node, ...]

    @staticmethod
    def of(program: Program, returns_given: bool = False) -> Border:
        returned = [one for one in program.returned if isinstance(one, fx.Node)]
        if returns_given:
            for node in returned:
                _take_apart(node)
        outside = frozenset(_outside(program))
        computed = dict.fromkeys(node for one in returned for node in _computed(one, outside, returns_given))
        inside, taken = _inside(program, outside, tuple(computed))
        return Border(program, inside, outside, taken, tuple(computed))

    def load(self, inside: GraphCall) -> GraphCall:
        """The whole graph, around the inside as it was built."""
        text = _Text(self)
        text.write()
        source = text.source
        return load(source.text, {**source.namespace, "inside": inside}, "graph")


def _outside(program: Program) -> Iterator[fx.Node]:
    """The wrappers that a graph is given, and what is read off them."""
    found: set[fx.Node] = set()
    for node in program.module.graph.nodes:
        is_read = node.target is inner_tensor or node.target in READ_OFF
        is_given = node.op == "placeholder" and (is_wrapper(value_of(node)) or is_ragged(value_of(node)))
        if is_given or (is_read and node.args[0] in found):
            found.add(node)
            yield node


def _take_apart(node: fx.Node) -> None:
    """Has the graph read all inner tensors of a wrapper that it returns as it is given."""
    if node.op != "placeholder" and node.target is not inner_tensor:
        return
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or not is_wrapper(value):
        return
    for name in Recipe.of(value).names:
        found = next((user for user in node.users if user.target is inner_tensor and user.args[1] == name), None)
        if found is None:
            with node.graph.inserting_after(_last_given(node)):
                found = node.graph.create_node("call_function", inner_tensor, (node, name), {}, f"{node.name}_{name}")
            found.meta["val"] = getattr(value, name)
        _take_apart(found)


def _last_given(node: fx.Node) -> fx.Node:
    """The last of a graph's inputs; an inner tensor itself."""
    return node if node.target is inner_tensor else node.graph.find_nodes(op="placeholder")[-1]


def _computed(node: fx.Node, outside: frozenset[fx.Node], returns_given: bool) -> Iterator[fx.Node]:
    """The plain values that a result is made of; of those outside only such as are returned even if given."""
    if node in outside:
        if returns_given:
            yield from _plain_inner(node)
        return
    if not makes_wrapper(node):
        yield node
        return
    numbers = [each for each in (*node.args[0], *node.args[1]) if isinstance(each, fx.Node)]  # type: ignore[misc]
    for part in (*inner_nodes(node), *numbers):
        yield from _computed(part, outside, returns_given)


def _plain_inner(node: fx.Node) -> Iterator[fx.Node]:
    """The plain tensors of which a given wrapper is made, in the order of its recipe; such a tensor itself."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or node.target in READ_OFF:
        return
    if not is_wrapper(value):
        yield node
        return
    read = {user.args[1]: user for user in node.users if user.target is inner_tensor}
    for name in Recipe.of(value).names:
        if name in read:
            yield from _plain_inner(read[name])


def _inside(
    program: Program, outside: frozenset[fx.Node], computed: tuple[fx.Node, ...]
) -> tuple[Program, tuple[fx.Node, ...]]:
    """The graph of plain tensors, and what it is given: of each input, what is read, in the place of the input."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    roles = dict(zip(program.placeholders, program.signature.inputs, strict=True))
    places: dict[InputRole | OutputRole, int] = {role: place for place, role in enumerate(program.signature.inputs)}
    given = list(dict.fromkeys([*_read(program, outside), *(node for node in computed if node in outside)]))
    given.sort(key=lambda node: places[_outermost(_role_of(node, roles))])
    for node in given:
        copies[node] = graph.placeholder(node.name)
        if is_ragged(value_of(node)):
            raise Unsupported(f"the program computes with the size of each row, {node.name}")
        copies[node].meta.update(node.meta)
    for node in program.module.graph.nodes:
        if node not in copies and node not in outside and node.op != "output" and not makes_wrapper(node):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in computed])
    eliminate_dead_nodes(graph)
    returned = dict(zip(program.returned, program.signature.outputs, strict=True))
    parts = {part: role for node, role in returned.items() for part, role in _parts(node, role) if part != node}
    outputs = tuple(returned.get(node) or parts.get(node) or Size(node.name) for node in computed)
    inputs = tuple(_role_of(node, roles) for node in given)
    signature = replace(program.signature, inputs=inputs, outputs=outputs, results=())
    return Program(module_of(program.module, graph), signature), tuple(given)


def _read(program: Program, outside: frozenset[fx.Node]) -> Iterator[fx.Node]:
    """What the graph of plain tensors reads of what it is given."""
    for node in program.module.graph.nodes:
        is_read = any(not makes_wrapper(user) and user.op != "output" and user not in outside for user in node.users)
        if node.op == "placeholder" if node not in outside else is_read:
            yield node


def _outermost(role: InputRole) -> InputRole | OutputRole:
    return role.of if isinstance(role, Inner) else role


def _role_of(node: fx.Node, roles: Mapping[fx.Node, InputRole]) -> InputRole:
    path: list[str] = []
    while node not in roles:
        path.insert(0, str(node.args[1]))
        node = node_argument(node, 0)
    return Inner(roles[node], tuple(path)) if path else roles[node]


def _parts(node: object, role: OutputRole) -> Iterator[tuple[fx.Node, OutputRole]]:
    """The plain tensors of which a result is put together, with the attributes that lead to each."""
    if not isinstance(node, fx.Node):
        return
    inner = dict(_inner_of(node))
    if not inner:
        yield node, role
    of, path = (role.of, role.path) if isinstance(role, Inner) else (role, ())
    for name, part in inner.items():
        yield from _parts(part, Inner(of, (*path, name)))


def _inner_of(node: fx.Node) -> Iterator[tuple[str, fx.Node]]:
    """The inner tensors of a wrapper by their attributes, of a given one those that the graph reads."""
    if makes_wrapper(node):
        recipe: Any = node.target
        yield from zip(recipe.names, inner_nodes(node), strict=True)
        return
    for user in node.users:
        if user.target is inner_tensor:
            yield str(user.args[1]), user


@dataclass(slots=True)
class _Text:
    """The function around the inside, while it is written."""

    border: Border
    source: Source = field(default_factory=Source)
    names: dict[fx.Node, str] = field(default_factory=dict)

    def write(self) -> None:
        program, line = self.border.program, self.source.line
        returned = [one for one in program.returned if isinstance(one, fx.Node)]
        line(0, "def graph(args):")
        for place, node in enumerate(program.placeholders):
            self.names[node] = f"args[{place}]"
        given = ", ".join(map(self.text, self.border.taken))
        line(1, f"given = [{given}]")
        for node in sorted(set(self._kept(returned))):
            line(1, f"{node.name} = {self.names[node]}")
            self.names[node] = node.name
        line(1, "args.clear()")
        line(1, "made = inside(given)")
        made = {node: f"made[{place}]" for place, node in enumerate(self.border.computed)}
        self.names |= {node: text for node, text in made.items() if node not in self.border.outside}
        texts = [self.text(one) if isinstance(one, fx.Node) else repr(one) for one in program.returned]
        line(1, f"return ({''.join(text + ', ' for text in texts)})")

    def _kept(self, nodes: list[fx.Node]) -> Iterator[fx.Node]:
        """The inputs off which results are read."""
        for node in nodes:
            if node.op == "placeholder" and node in self.border.outside:
                yield node
            elif node in self.border.outside or makes_wrapper(node):
                yield from self._kept(node.all_input_nodes)

    def text(self, node: fx.Node) -> str:
        """The expression of a value; the wrapper that it is put together as gets a variable."""
        if node in self.names:
            return self.names[node]
        if node.target is inner_tensor:
            return f"{self.text(node_argument(node, 0))}.{node.args[1]}"
        if node.target in READ_OFF:
            return f"{self.text(node_argument(node, 0))}.{READ_OFF[node.target]}({node.args[1]})"
        self.source.line(1, f"{node.name} = {self._wrapped(node)}")
        self.names[node] = node.name
        return node.name

    def _wrapped(self, node: fx.Node) -> str:
        size, stride, *_ = node.args
        recipe: Any = node.target
        pairs = zip(recipe.names, inner_nodes(node), strict=True)
        bind = self.source.bind
        texts = [(name, self.text(part)) for name, part in pairs]
        texts += [(name, bind(name, held)) for name, held in recipe.held.items()]
        inner = ", ".join(f"{name!r}: {text}" for name, text in texts)
        make = bind(recipe.__name__, recipe.kind.__tensor_unflatten__)
        context = bind("context", recipe.context) if recipe.context is not None else "None"
        return f"{make}({{{inner}}}, {context}, {self._numbers(size, 'size')}, {self._numbers(stride, 'stride')})"

    def _numbers(self, numbers: Any, name: str) -> str:
        """A size or stride: one object where its numbers are known, as some classes ask for the type."""
        as_size = torch.Size if name == "size" else tuple
        if not any(isinstance(each, fx.Node) for each in numbers):
            return self.source.bind(name, as_size(numbers))
        text = "".join((self.text(each) if isinstance(each, fx.Node) else str(each)) + ", " for each in numbers)
        return f"{self.source.bind('size_of', torch.Size)}(({text}))" if name == "size" else f"({text})"
