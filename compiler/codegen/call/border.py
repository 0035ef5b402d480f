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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from assay.compiler.codegen.call.source import Source
from assay.compiler.codegen.host import load
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import CallInput, GraphCall, Inner, InputRole, OutputRole, Program, Saved, Size
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, module_of
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers, inner_nodes, makes_wrapper
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensor, is_ragged, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument, value_of

Build = Callable[[Program], GraphCall]
READ_OFF = {torch.ops.aten.sym_size.int: "size", torch.ops.aten.sym_stride.int: "stride"}
"""The calls that read a number off a wrapper, and the methods that do."""
OF_WRAPPER = "is_given_with_a_wrapper"
"""Marks sizes and strides of wrappers. A caller's own graph is given them behind the inner tensors, as in torch."""


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
            for node in (*returned, *_of_caller(program)):
                _take_apart(node)
            read_wrapper_sizes(program)
        outside = frozenset(_outside(program))
        made = _made_inside(program, outside, returns_given)
        inside, taken = _inside(program, outside, made, returns_given)
        return Border(program, inside, outside, taken, tuple(node for node, _ in made))

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


def _made_inside(
    program: Program, outside: frozenset[fx.Node], returns_given: bool
) -> list[tuple[fx.Node, OutputRole]]:
    """What the graph of plain tensors returns, and as what: each tensor once. Numbers come as often as wrappers have
    them where it `returns_given`, and those that are saved come last."""
    pairs = list(zip(program.returned, program.signature.outputs, strict=True))
    whole = {node: role for node, role in pairs if isinstance(node, fx.Node)}
    parts = {part: role for node, role in whole.items() for part, role in _parts(node, role) if part != node}
    found: list[tuple[fx.Node, OutputRole]] = []
    seen: set[fx.Node] = set()
    for one, outer in ((node, role) for node, role in pairs if isinstance(node, fx.Node)):
        parts_of_one = [*_computed(one, outside, returns_given)]
        if returns_given and not isinstance(outer, Saved):
            parts_of_one += _numbers_of_given(program, one, outside)
        for node in parts_of_one:
            is_number_of_wrapper = returns_given and node is not one and isinstance(value_of(node), SYMBOLIC)
            if is_number_of_wrapper or node not in seen:
                role = None if is_number_of_wrapper else whole.get(node) or parts.get(node)
                found.append((node, role or Size(node.name)))
            if not is_number_of_wrapper:
                seen.add(node)
    return sorted(found, key=_is_saved_size) if returns_given else found


def _is_saved_size(pair: tuple[fx.Node, InputRole | OutputRole]) -> bool:
    return isinstance(pair[1], Saved) and isinstance(value_of(pair[0]), SYMBOLIC)


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
    """The plain tensors of which a given wrapper is made, in the order of its recipe; of such a tensor, and of a number
    that a caller's own graph is given, itself."""
    value = value_of(node)
    if node.target in READ_OFF or not isinstance(value, torch.Tensor):
        if OF_WRAPPER in node.meta:
            yield node
        return
    if not is_wrapper(value):
        yield node
        return
    read = {user.args[1]: user for user in node.users if user.target is inner_tensor}
    for name in Recipe.of(value).names:
        if name in read:
            yield from _plain_inner(read[name])


def _numbers_of_given(program: Program, node: fx.Node, outside: frozenset[fx.Node]) -> Iterator[fx.Node]:
    """The symbolic sizes and strides of a wrapper that is returned as it is given: of equal ones the last given."""
    value = value_of(node)
    if node not in outside or not isinstance(value, torch.Tensor) or not is_wrapper(value):
        return
    known = {_expression(each): each for each in (*program.placeholders, *read_wrapper_sizes(program))}
    for _, _, number in _symbolic_numbers(value):
        if number.node.expr in known:
            yield known[number.node.expr]


def _expression(node: fx.Node) -> object:
    """The expression of a symbolic integer; None for another value."""
    value = value_of(node)
    return value.node.expr if isinstance(value, torch.SymInt) else None


def _of_caller(program: Program) -> Iterator[fx.Node]:
    """The wrappers that a graph is given by its caller, and that are not only saved."""
    for role, node in zip(program.signature.inputs, program.placeholders, strict=True):
        value = value_of(node)
        if not isinstance(role, Saved) and isinstance(value, torch.Tensor) and is_wrapper(value):
            yield node


def read_wrapper_sizes(program: Program) -> list[fx.Node]:
    """The symbolic sizes and strides of the wrappers among the arguments of a call, which the graph reads from now on.
    In torch's order: of each wrapper the sizes, then the strides."""
    roles = dict(zip(program.placeholders, program.signature.inputs, strict=True))
    found: list[fx.Node] = []
    for node in _of_caller(program):
        if isinstance(roles[node], CallInput):
            for target, dim, number in _symbolic_numbers(value_of(node)):
                found.append(_read_number(node, target, dim, number, found[-1] if found else _last_given(node)))
    return found


def _symbolic_numbers(wrapper: Any) -> Iterator[tuple[Any, int, torch.SymInt]]:
    for target, numbers in zip(READ_OFF, (wrapper.shape, wrapper.stride()), strict=True):
        for dim, number in enumerate(numbers):
            if isinstance(number, torch.SymInt) and not is_ragged(number):
                yield target, dim, number


def _read_number(wrapper: fx.Node, target: Any, dim: int, number: torch.SymInt, last: fx.Node) -> fx.Node:
    """A size or stride of a wrapper as a node; a new one stands behind `last`."""
    for user in wrapper.users:
        if OF_WRAPPER in user.meta and user.target is target and user.args[1] == dim:
            return user
    with wrapper.graph.inserting_after(last):
        made = wrapper.graph.call_function(target, (wrapper, dim))
    made.meta.update({"val": number, OF_WRAPPER: True})
    return made


def _inside(
    program: Program,
    outside: frozenset[fx.Node],
    made: Sequence[tuple[fx.Node, OutputRole]],
    returns_given: bool,
) -> tuple[Program, tuple[fx.Node, ...]]:
    """The graph of plain tensors, and what it is given: of each input, what is read, in the place of the input."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    given = _given(program, outside, [node for node, _ in made], returns_given)
    for node in given:
        copies[node] = graph.placeholder(node.name)
        if is_ragged(value_of(node)):
            raise Unsupported(f"the program computes with the size of each row, {node.name}")
        copies[node].meta.update(node.meta)
    for node in program.module.graph.nodes:
        if node not in copies and node not in outside and node.op != "output" and not makes_wrapper(node):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node, _ in made])
    eliminate_dead_nodes(graph)
    outputs = tuple(role for _, role in made)
    signature = replace(program.signature, inputs=tuple(given.values()), outputs=outputs, results=())
    return Program(module_of(program.module, graph), signature), tuple(given)


def _given(
    program: Program, outside: frozenset[fx.Node], returned: Sequence[fx.Node], returns_given: bool
) -> dict[fx.Node, InputRole]:
    """What the graph of plain tensors is given, and as what. A caller's own graph is given all that a wrapper is made
    of, and sizes that are saved first."""
    roles = dict(zip(program.placeholders, program.signature.inputs, strict=True))
    places: dict[InputRole | OutputRole, int] = {role: place for place, role in enumerate(program.signature.inputs)}
    whole: list[fx.Node] = []
    if returns_given:
        numbers = read_wrapper_sizes(program)
        for node in _of_caller(program):
            whole += [*_plain_inner(node), *(each for each in numbers if each.args[0] is node)]
    found = dict.fromkeys([*whole, *_read(program, outside), *(node for node in returned if node in outside)])
    given = [(node, _role_of(node, roles)) for node in found]
    given.sort(key=lambda pair: (returns_given and not _is_saved_size(pair), places[_outermost(pair[1])]))
    return dict(given)


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
        method = next((method for call, method in READ_OFF.items() if call is node.target), None)
        path.insert(0, f"{method}({node.args[1]})" if method else str(node.args[1]))
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
