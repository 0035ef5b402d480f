"""The form in which graphs are handed to a caller's compilers: torch's own.

forward    (primals...)              ->  (written inputs..., results..., bases of results..., saved values...)
backward   (saved..., tangents...)   ->  (a gradient, or None, for each primal)

Saved sizes are the last that a forward returns, and the first that a backward takes. Results stand in the order in
which the program returns them. An input that autograd sees written is copied first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import called
from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import (
    Base,
    CallInput,
    Gradient,
    GraphCall,
    Inner,
    InputRole,
    Mutation,
    OutputRole,
    Program,
    Saved,
    Shared,
    Shown,
    Signature,
    Size,
    UserOutput,
    View,
)
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, module_of
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, has_symbols
from assay.compiler.runtime.bases_of_views import BaseOfViews, Lying

aten = torch.ops.aten
LAST = 1 << 60
"""Behind every index."""


@dataclass(frozen=True, slots=True)
class Form:
    """A graph in torch's form.

    `outputs` are the roles of what it returns, None being no gradient; `places` are where the program's own outputs
    stand among them, for whoever calls it. `left_out` are those that are made of the views of them
    at these places. `taken` are the places of its inputs among those of whoever calls it.
    """

    program: Program
    places: tuple[int, ...]
    outputs: tuple[OutputRole | None, ...]
    left_out: Mapping[int, tuple[BaseOfViews, tuple[int, ...]]] = field(default_factory=dict)
    taken: tuple[int, ...] = ()

    def called(self, run: Callable[[list[object]], Sequence[object]]) -> GraphCall:
        """A compiled graph of this form, which returns the outputs as the program's signature has them."""
        places, left_out, taken = self.places, self.left_out, self.taken
        if places == tuple(range(len(self.program.returned))) and not left_out and not taken:
            return run

        def picked(args: list[object]) -> Sequence[object]:
            args[:] = [args[index] for index in taken] or args
            outputs: Sequence[Any] = run(args)
            made = {place: base.made([outputs[view] for view in views]) for place, (base, views) in left_out.items()}
            return [made[index] if index in made else outputs[place] for index, place in enumerate(places)]

        return picked


@dataclass(frozen=True, slots=True)
class CallingForm:
    """The forms of one compile's graphs. What forwards take is noted, as backwards have a place for each of it."""

    primals: list[tuple[InputRole | OutputRole, ...]] = field(default_factory=list)

    def of(self, program: Program) -> Form:
        """A copy of a program in torch's form; its outputs as they are where they are no results of the call's."""
        signature = program.signature
        copied = _copied(program)
        if signature.outputs and all(isinstance(role, Gradient) for role in signature.outputs):
            return self._backward(copied)
        if not signature.results:
            if program.is_backward:
                return self._backward_of_wrappers(copied)
            self.primals.append(tuple(dict.fromkeys(map(outermost, signature.inputs))))
            return _as_they_are(copied)
        self.primals.append(signature.inputs)
        left_out = dict(_left_out(copied))
        order = sorted(set(range(len(signature.outputs))) - left_out.keys(), key=lambda place: _rank(copied, place))
        values, places = copied.returned, {place: index for index, place in enumerate(order)}
        set_returned(copied.module, [values[place] for place in order])
        eliminate_dead_nodes(copied.module.graph)
        made = {place: (base, tuple(map(places.__getitem__, views))) for place, (base, views) in left_out.items()}
        roles = tuple(signature.outputs[place] for place in order)
        return Form(copied, tuple(places.get(place, 0) for place in range(len(values))), roles, made)

    def _backward(self, program: Program) -> Form:
        """With None in the place of each primal that gets no gradient."""
        found: dict[InputRole | OutputRole, fx.Node | int | None] = dict(_gradients(program))
        known = (primals for primals in reversed(self.primals) if found.keys() <= {*primals})
        primals = next(known, None)
        if primals is None:
            return _as_they_are(program)
        set_returned(program.module, [found.get(role) for role in primals])
        taken = _sizes_first(program)
        inputs = tuple(program.signature.inputs[place] for place in taken or range(len(program.signature.inputs)))
        ordered = Program(program.module, replace(program.signature, inputs=inputs))
        roles = tuple(Gradient(role) if role in found else None for role in primals)  # type: ignore[arg-type]
        return Form(ordered, tuple(primals.index(role) for role in found), roles, taken=taken)

    def _backward_of_wrappers(self, program: Program) -> Form:
        """With one None in the place of each primal that gets no gradient, and no inner tensors of it."""
        groups: dict[InputRole | OutputRole, list[int]] = {}
        of: InputRole | OutputRole | None = None
        for place, role in enumerate(program.signature.outputs):
            outer = outermost(role)
            of = outer.of if isinstance(outer, Gradient) else of  # the sizes of a gradient stand behind it
            if of is not None:
                groups.setdefault(of, []).append(place)
        known = (primals for primals in reversed(self.primals) if groups.keys() <= {*primals})
        primals = next(known, None)
        if primals is None or sum(map(len, groups.values())) < len(program.returned):
            return _as_they_are(program)
        order = [place for role in primals for place in groups.get(role, (None,))]
        values, outputs = program.returned, program.signature.outputs
        set_returned(program.module, [None if place is None else values[place] for place in order])
        places = {place: index for index, place in enumerate(order)}
        roles = tuple(None if place is None else outputs[place] for place in order)
        return Form(program, tuple(places[place] for place in range(len(values))), roles)


def outermost(role: InputRole | OutputRole) -> InputRole | OutputRole:
    """The wrapper that an inner tensor is of; any other role itself."""
    return role.of if isinstance(role, Inner) else role


def _gradients(program: Program) -> Iterator[tuple[CallInput | Shared, fx.Node | int | None]]:
    for role, node in zip(program.signature.outputs, program.returned, strict=True):
        assert isinstance(role, Gradient)
        yield role.of, node


def _sizes_first(program: Program) -> tuple[int, ...]:
    """Puts the placeholders of saved sizes first; where each stood. Nothing where they are first already."""
    nodes = program.placeholders
    order = sorted(range(len(nodes)), key=lambda place: not isinstance(nodes[place].meta.get("val"), SYMBOLIC))
    if order == sorted(order):
        return ()
    for place in reversed(order):
        program.module.graph._root.append(nodes[place])
    return tuple(order)


def _as_they_are(program: Program) -> Form:
    set_returned(program.module, program.returned)  # a tuple, whose members may be of several types
    return Form(program, tuple(range(len(program.returned))), program.signature.outputs)


def _copied(program: Program) -> Program:
    """A copy of the program, in which a forward computes with copies of what it writes. What it saves are the inputs.

    An input whose strides alone are changed stands for itself, as a view.
    """
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    fresh = dict(_fresh(program))
    makes = Counter(_name_of(target) for target in fresh.values())
    for node in program.placeholders:
        values[node] = graph.node_copy(node)
    inputs = dict(values)
    for index, (place, target) in enumerate(fresh.items()):
        number = sum(other is target for other in [*fresh.values()][:index])
        values[place] = _made(graph, target, values[place], f"_{number}" if number else "")
    for node in program.module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            values[node] = graph.create_node(node.op, node.target, *_arguments(node, values), _moved(node.name, makes))
            values[node].meta = dict(node.meta)
    returned = [(inputs.get(one) or values[one]) if isinstance(one, fx.Node) else one for one in program.returned]
    graph.output(returned)
    return Program(module_of(program.module, graph), program.signature)


def _arguments(node: fx.Node, values: dict[fx.Node, fx.Node]) -> tuple[Any, Any]:
    return fx.map_arg((node.args, node.kwargs), values.__getitem__)


def _fresh(program: Program) -> Iterator[tuple[fx.Node, torch._ops.OpOverload]]:
    """The inputs of a forward that it changes, each with the call that makes something of its own of it."""
    signature = program.signature
    if not signature.differentiable or not signature.results:
        return
    written = {role.of for role in signature.outputs if isinstance(role, Mutation)}
    seen = {role.of for role in signature.outputs if isinstance(role, Mutation) and role in signature.differentiable}
    changed = {role.of for role in signature.outputs if isinstance(role, Shown)} - written
    for role, place in zip(signature.inputs, program.placeholders, strict=True):
        if role in seen:
            yield place, aten.clone.default
        elif role in changed:
            yield place, aten.view.default


def _made(graph: fx.Graph, target: torch._ops.OpOverload, place: fx.Node, number: str) -> fx.Node:
    shape = [_shape_of(place)] if target is aten.view.default else []
    made = graph.create_node("call_function", target, (place, *shape), {}, _name_of(target) + number)
    made.meta = dict(place.meta)
    return made


def _shape_of(place: fx.Node) -> list[int | fx.Node]:
    """The shape of an input: numbers, and calls that ask the input for its symbolic sizes."""
    sizes = enumerate(place.meta["val"].shape)
    return [size if isinstance(size, int) else called(aten.sym_size.int, place, dim) for dim, size in sizes]


def _name_of(target: torch._ops.OpOverload) -> str:
    return str(target._opname)


def _moved(name: str, makes: Mapping[str, int]) -> str:
    """The name of a node behind those that are made of inputs: its number grows by how many have its name."""
    stem, _, number = name.rpartition("_")
    if makes.get(name):
        return f"{name}_{makes[name]}"
    return f"{stem}_{int(number) + makes[stem]}" if number.isdecimal() and makes.get(stem) else name


def _left_out(program: Program) -> Iterator[tuple[int, tuple[BaseOfViews, tuple[int, ...]]]]:
    """The bases that torch has no output for, each with the places of its views: those that no gradient leads to, and
    those of one view.
    """
    signature, returned = program.signature, program.returned
    places = {role: place for place, role in enumerate(signature.outputs)}
    views: dict[object, list[int]] = {}
    for index, made in enumerate(signature.results):
        if isinstance(made, View) and Shown(UserOutput(index)) in places:
            views.setdefault(made.of, []).append(places[Shown(UserOutput(index))])
    for role, place in places.items():
        found = views.get(role, [])
        if not isinstance(role, Base) or not found or (role in signature.differentiable and len(found) > 1):
            continue
        values = [one.meta["val"] for one in (returned[place], *(returned[view] for view in found))]  # type: ignore[union-attr]
        if _are_of_one_kind(values):
            yield place, (BaseOfViews(Lying.of(values[0]), tuple(map(Lying.of, values[1:]))), tuple(found))


def _are_of_one_kind(values: Sequence[torch.Tensor]) -> bool:
    """Whether tensors of known sizes lie in one memory as numbers of one kind."""
    kinds = {(value.dtype, value.is_conj(), value.is_neg(), value.untyped_storage()._cdata) for value in values}
    return len(kinds) == 1 and not any(map(has_symbols, values))


def _rank(program: Program, place: int) -> tuple[int, int, int]:
    """Where torch has an output, as a sort key."""
    signature = program.signature
    role, node = signature.outputs[place], program.returned[place]
    if isinstance(role, Mutation):
        return 0, role.of.index, place
    if isinstance(role, Shown) and not isinstance(role.of, UserOutput):
        return 2 if _is_shared(signature, role.of) else 0, role.of.index, place
    if isinstance(role, Base) and (moved := signature.memory_of(role)) is not None:
        return 0, moved.index, place
    index = _result_of(signature, role)
    is_size = isinstance(role, Saved) and isinstance(node, fx.Node) and isinstance(node.meta.get("val"), SYMBOLIC)
    return (1, index, place) if index is not None else (4 if is_size else 3, LAST, place)


def _is_shared(signature: Signature, of: CallInput) -> bool:
    """Whether an input lies in memory that others share, and is so a view of what the graph is given."""
    return any(isinstance(role, Shared) and of in role.of for role in signature.inputs)


def _result_of(signature: Signature, role: OutputRole) -> int | None:
    """The place among the call's results of an output that is one."""
    if isinstance(role, UserOutput):
        return role.index
    if isinstance(role, Shown):
        return role.of.index
    return signature.results.index(role) if isinstance(role, Size) and role in signature.results else None
