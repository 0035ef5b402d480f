"""`gradients_again`: gradients of gradients of a call, to any order, recorded when they are first asked for.

    order 1    what the call returns           -> the gradients of its inputs, under tangents
    order 2    the gradients of order 1        -> those of the inputs and of order 1's tangents, under tangents of them
    order n    the gradients of order n - 1    -> those of the inputs and of all tangents so far

The call is recorded again with autograd open through all orders. So what is constant in eager (under `no_grad`,
detached, in a formula that is not differentiable) is constant here. Values that forward has kept are read, and the
rest is computed again from them. Nothing is kept for an order that nobody asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import sympy
import torch
from torch import fx

from assay.compiler.autograd.joint import ONLY_DATA_TELLS, by_itself, record_tangent
from assay.compiler.autograd.rematerialization.random_replay import draw_again, state_name
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.backward.derivative_path import Again, Path
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.held_functions import HELD_FUNCTIONS, is_any_inside
from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.trace import autocast_off, is_random, module_of
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, number_at
from assay.compiler.ir.typed_nodes import fake_value, ints_argument, node_argument

aten = torch.ops.aten


def gradients_again(
    captured: Captured,
    path: Path,
    kept: Mapping[str, fx.Node],
    sizes: Mapping[sympy.Symbol, int],
    *,
    is_open: bool,
    prepare: Callable[[Program], object] = lambda program: None,
) -> Again:
    """The gradients of order `len(path)`. `kept` are the values that forward returns for backward, by their names, and
    `sizes` what their symbolic sizes are in this recording; `is_open`: more orders may follow, so it is told which
    gradients are differentiable. `prepare` brings the recording into the form in which random numbers were kept.

    Raises: Unsupported where forward kept too little; what eager raises for a formula that has no gradient itself.
    """
    trace = captured.trace
    values: list[torch.Tensor | None] = list(captured.differentiable_values.values())
    sources: list[torch.Tensor] = list(captured.leaves.values())
    tangents: list[torch.Tensor] = []
    with trace.recording(), autocast_off(), torch.set_grad_enabled(True):
        for depth, given in enumerate(path):
            goes_on = is_open or depth + 1 < len(path)
            of = [_value(values, index) for index, _ in given]
            fresh = [
                record_tangent(trace, len(tangents) + position, value, needs_grad and goes_on)
                for position, (value, (_, needs_grad)) in enumerate(zip(of, given, strict=True))
            ]
            values = _gradients(of, sources, fresh, goes_on)
            tangents += fresh
            sources = [*sources, *fresh]
        returned = [trace.node_of(value) if value is not None else None for value in values]
        follows = [value is not None and value.requires_grad for value in values]
        inputs = [trace.node_of(tangent) for tangent in tangents]
    module = trace.finish(returned)
    prepare(Program(module, Signature((), ())))
    returned = list(next(iter(reversed(module.graph.nodes))).args[0])
    same = {node for node in module.graph.nodes if node.name in kept and _is_same(node, kept[node.name], sizes)}
    whole = dict(_viewed_whole(same))
    read, drawn = _read(module.graph, returned, inputs, same, whole, kept)
    outputs = [node for node in returned if node is not None]
    numbers = iter(range(len(outputs)))
    gradients = tuple(next(numbers) if node is not None else None for node in returned)
    states = [kept[state_name(node)] for node in drawn]
    program = draw_again(_program(module, [*read, *inputs], outputs, whole), states, len(read))
    differentiable = {of for of, needs in zip(gradients, follows, strict=True) if needs and of is not None}
    names = tuple(node.name for node in (*read, *states))
    return Again(program, names, tuple(captured.leaves), gradients, frozenset(differentiable))


def as_recorded(
    kept: Mapping[str, fx.Node],
    symbolic: Captured,
    numeric: Captured,
    prepare: Callable[[Program], object] = lambda program: None,
) -> dict[str, fx.Node]:
    """Those of the values that forward kept which have the same name in a recording with numbers for the sizes.

    Both recordings are of the call alone. They name their calls alike as long as they make the same ones, but for
    slices of all there is, which are only made where sizes are symbols. `prepare` brings a recording into the form in
    which random numbers were kept, which renames the calls that draw them.
    """
    graphs = [_prepared(captured, prepare) for captured in (symbolic, numeric)]
    same: set[str] = set()
    for one, other in zip(*map(_tensor_calls, graphs), strict=False):
        if one.target != other.target or (one.op == "placeholder" and one.name != other.name):
            break
        same |= {one.name} & {other.name}
    same |= {state_name(node) for node in graphs[1].nodes if node.name in same}
    return {name: node for name, node in kept.items() if name in same}


def _prepared(captured: Captured, prepare: Callable[[Program], object]) -> fx.Graph:
    """A copy of what has been recorded so far, prepared. It returns every tensor, so that nothing of it is dead."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in sorted(captured.trace.graph.nodes, key=lambda node: node.op != "placeholder"):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copy for copy in copies.values() if isinstance(copy.meta.get("val"), torch.Tensor)])
    module = module_of(captured.trace.tracer.root, graph)
    prepare(Program(module, Signature((), ())))
    return module.graph


def _tensor_calls(graph: fx.Graph) -> Iterator[fx.Node]:
    """The inputs and calls whose values are not sizes, nor numbers that Python makes of these; no slices of all."""
    return (node for node in graph.nodes if not _is_of_sizes(node) and not _is_whole_slice(node))


def _is_whole_slice(node: fx.Node) -> bool:
    if node.target is not aten.slice.Tensor:
        return False
    given = fake_value(node_argument(node, 0))
    return list(map(str, node.meta["val"].shape)) == list(map(str, given.shape))


def _is_of_sizes(node: fx.Node) -> bool:
    value = node.meta.get("val")
    is_read = isinstance(node.target, torch._ops.OpOverload)  # out of a tensor
    return isinstance(value, torch.SymInt | torch.SymBool | int) or (
        isinstance(value, torch.SymFloat | float) and node.op == "call_function" and not is_read
    )


def _value(values: Sequence[torch.Tensor | None], index: int) -> torch.Tensor:
    value = values[index]
    assert value is not None, "a tangent of a gradient that does not exist"
    return value


def _gradients(
    of: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor], goes_on: bool
) -> list[torch.Tensor | None]:
    """The gradient of each source; None where nothing leads to it.

    Raises: Unsupported for a formula that reads its data, which only a run would tell.
    """
    wanted = [source for source in sources if source.requires_grad]
    pairs = [(value, tangent) for value, tangent in zip(of, tangents, strict=True) if value.requires_grad]
    if not wanted or not pairs:
        return [None] * len(sources)
    try:
        with by_itself():
            found = torch.autograd.grad(
                [value for value, _ in pairs],
                wanted,
                [tangent for _, tangent in pairs],
                allow_unused=True,
                create_graph=goes_on,
            )
    except ONLY_DATA_TELLS as error:
        raise Unsupported(f"the formula of a gradient of a gradient reads its data: {error}") from error
    made = iter(found)
    return [next(made) if source.requires_grad else None for source in sources]


def _read(
    graph: fx.Graph,
    returned: Sequence[fx.Node | None],
    tangents: Collection[fx.Node],
    same: Collection[fx.Node],
    whole: Mapping[fx.Node, fx.Node],
    kept: Mapping[str, fx.Node],
) -> tuple[list[fx.Node], list[fx.Node]]:
    """The kept values (those in `same`) from which, with the tangents, everything else is computed again, and the calls
    that draw random numbers again, in the order of the graph. A value is read through a kept view of all of it.

    Raises: Unsupported where that is not possible.
    """
    seen: set[fx.Node] = set()
    read: set[fx.Node] = set()
    drawn: set[fx.Node] = set()
    stack = [node for node in returned if node is not None]
    while stack:
        node = stack.pop()
        if node in seen or node in tangents:
            continue
        seen.add(node)
        if node in same:
            read.add(node)
            continue
        if node in whole:
            read.add(whole[node])
            continue
        if node.op == "placeholder":
            raise Unsupported(f"a gradient of a gradient needs {node.name}, which eager's forward does not keep")
        if node.target in HELD_FUNCTIONS and is_any_inside(node, cast(torch.nn.Module, graph.owning_module), is_random):
            raise Unsupported(f"a gradient of a gradient needs the random numbers of {node.name}, which are not kept")
        if is_random(node):
            if state_name(node) not in kept:
                raise Unsupported(
                    f"a gradient of a gradient needs the random numbers of {node.name}, which are not kept"
                )
            drawn.add(node)
        stack.extend(node.all_input_nodes)
    return [node for node in graph.nodes if node in read], [node for node in graph.nodes if node in drawn]


def _is_same(node: fx.Node, kept: fx.Node, sizes: Mapping[sympy.Symbol, int]) -> bool:
    """Whether a kept value is of the kind that a node of the same name is here."""
    value, other = node.meta.get("val"), kept.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return value.dtype == other.dtype and tuple(value.shape) == tuple(number_at(s, sizes) for s in other.shape)
    return isinstance(value, SYMBOLIC) and isinstance(other, SYMBOLIC) and _expression(value) == _expression(other)


def _expression(number: object) -> str:
    """A number as it is computed of sizes and of numbers that are read: each recording counts those it reads anew."""
    return re.sub(r"\b(zuf|u)\d+\b", r"\1", str(number))


def _viewed_whole(kept: Collection[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Values that are not kept, each with a kept view of all of its elements."""
    for view in kept:
        node = view
        while node.target in BACK and (node is view or node not in kept):
            node = node_argument(node, 0)
        if node not in kept:
            yield node, view


def _unpermuted(call: fx.Node) -> tuple[object, tuple[object, ...]]:
    dims = ints_argument(call, 1)
    return aten.permute.default, (sorted(range(len(dims)), key=lambda place: dims[place] % len(dims)),)


BACK: dict[object, Callable[[fx.Node], tuple[Any, tuple[Any, ...]]]] = {
    aten.t.default: lambda call: (aten.t.default, ()),
    aten.detach.default: lambda call: (aten.detach.default, ()),
    aten.alias.default: lambda call: (aten.alias.default, ()),
    aten.transpose.int: lambda call: (aten.transpose.int, call.args[1:]),
    aten.permute.default: _unpermuted,
    aten.unsqueeze.default: lambda call: (aten.squeeze.dim, call.args[1:]),
    aten.view.default: lambda call: (aten.view.default, (list(fake_value(node_argument(call, 0)).shape),)),
}
"""By view that keeps all elements: the operator that gives what it was called on, and its other arguments."""


def _program(
    module: fx.GraphModule, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], whole: Mapping[fx.Node, fx.Node]
) -> Program:
    """The part of a recording that leads from `inputs` to `outputs`."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    for node, view in whole.items():
        if view in copies:
            copies[node] = _back(graph, view, node, copies[view])
    for node in _needed(module.graph, outputs, copies):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in outputs])
    roles = tuple(UserInput(index) for index, _ in enumerate(inputs))
    signature = Signature(roles, tuple(UserOutput(index) for index, _ in enumerate(outputs)))
    return Program(module_of(module, graph), signature)


def _back(graph: fx.Graph, view: fx.Node, source: fx.Node, value: fx.Node) -> fx.Node:
    """What a chain of views begins with, of the value that it ends with."""
    while view is not source:
        before = node_argument(view, 0)
        target, arguments = BACK[view.target](view)
        value = graph.call_function(target, (value, *arguments))
        value.meta["val"] = before.meta["val"]
        view = before
    return value


def _needed(graph: fx.Graph, outputs: Sequence[fx.Node], given: Collection[fx.Node]) -> Iterator[fx.Node]:
    needed: set[fx.Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in needed and node not in given:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    return (node for node in graph.nodes if node in needed)
