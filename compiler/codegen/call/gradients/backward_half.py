"""The backward of a call: the tangents that it is given, and backwards without some of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch.compiler import is_dynamo_compiling

from assay.compiler.codegen.call.gradients.forward_half import (
    is_freed,
    root_of,
    roots_that_are_written,
    saved_as_written,
    saved_names,
    saved_noted,
    tangents_of,
)
from assay.compiler.codegen.call.gradients.tangent_views import views_of_tangents
from assay.compiler.codegen.call.prologue import AmbientNeeds
from assay.compiler.codegen.call.source import Source, is_tensor, name_of, name_of_argument
from assay.compiler.codegen.call.written_views import emit_notes
from assay.compiler.ir.graph.roles import Gradient, GraphCall, InputRole, OutputRole, Program, Saved, Tangent
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers, is_given, parts_of
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.runtime.call import (
    check_versions,
    in_autocast,
    in_batch,
    is_batch,
    is_grad_enabled,
    laid_out_as,
    without_autocast,
    zeros_like,
)
from assay.compiler.runtime.expected_inputs import ExpectedInputs
from assay.compiler.runtime.expected_wrappers import ExpectedWrapper, as_plain, zeros_around
from assay.compiler.runtime.higher_order import Roots
from assay.compiler.runtime.partial_backward import Part, PartialBackward
from assay.compiler.runtime.tangent_views import TangentView


def emit_backward_half(source: Source, forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots) -> None:
    visible = forward.signature.handed_on
    source.line(1, "@staticmethod")
    arguments = [*(f"tangent_{name_of(role)}" for role in visible), *["ticket"] * roots.is_anchored]
    source.line(1, f"def backward(ctx, {', '.join(arguments)}):")
    checked = saved_as_written(forward)
    names = [f"tangent_{name_of(role)}" for role in tangents_of(backward)]
    plain = ", ".join(["ctx", *arguments[: len(visible)], *["None"] * roots.is_anchored])
    tangents = f"ctx, ({''.join(name + ', ' for name in names)})"
    given = ", ".join([tangents, *arguments[len(visible) :]])
    again = f"higher_order(lambda: Graph.backward({plain}), {given})"
    asked = f"{'ticket is not None or ' * roots.is_anchored}{source.bind('is_grad_enabled', is_grad_enabled)}()"
    casting, plainly = source.bind("in_autocast", in_autocast), source.bind("without_autocast", without_autocast)
    source.line(2, f"if {source.bind('is_inlined', is_dynamo_compiling)}(): return inlined_backward({tangents})")
    source.line(2, f"if {casting}(): return {plainly}(Graph.backward, {', '.join(['ctx', *arguments])})")
    source.line(2, f"if {asked}: return {again}")
    emit_notes(source, forward, backward)
    if names:
        batched = [f"{source.bind('in_batch', in_batch)}()"]
        batched += [f"{source.bind('is_batch', is_batch)}({name})" for name in names if _is_elsewhere(backward)]
        source.line(2, f"if {' or '.join(batched)}: return recorded_backward({tangents})")
        if is_freed(forward) and not saved_names(forward)[0]:
            source.line(2, "ctx.saved_tensors  # raises, if they were freed")
        nothing = f"return ({'None, ' * (len(forward.signature.inputs) + bool(checked))})"
        source.line(2, f"if {' and '.join(f'{name} is None' for name in names)}: {nothing}")
        if len(names) > 1:
            some = " or ".join(f"{name} is None" for name in names)
            source.line(2, f"if {some}: return partial_backward({tangents})")
    _emit_unwrapped(source, forward, backward)
    tensors, sizes = saved_names(forward)
    if checked:
        source.line(2, f"{source.bind('check_versions', check_versions)}(ctx.written)")
    if tensors:
        source.line(2, f"({', '.join(tensors)}, {'_' * roots.is_anchored}) = ctx.saved_tensors")
    if sizes:
        source.line(2, f"({', '.join(sizes)},) = ctx.sizes")
    handed_on, views = _handed_on(backward), views_of_tangents(backward, sizes)
    seen = {tangent.of for tangent, _ in views.values()}
    for role, node in tangents_of(backward).items():
        if node in handed_on or role in seen:
            source.line(2, f"own_tangent_{name_of(role)} = tangent_{name_of(role)}")
    is_hooked = bool(tensors) and not needs.hooks_off
    _emit_fitting(source, forward, backward, is_hooked, f"return recorded_backward({tangents})")
    for index, (tangent, view) in views.items():
        name, bound = name_of_argument(tangent), source.bind("view_of", view)
        read = f"{bound}(own_{name}, {'ctx.sizes' if sizes else '()'})"
        source.line(2, f"view_{index} = None if {name} is own_{name} else {read}")
    arguments = [name_of_argument(role) for role in backward.signature.inputs]
    source.line(2, f"given = [{', '.join(arguments)}]")
    if tensors:  # each is freed as soon as the graph has used it, unless autograd keeps it for another backward
        source.line(2, f"del {', '.join(dict.fromkeys(arguments))}")
        source.line(2, "ctx.maybe_clear_saved_tensors()")
    source.line(2, "values = backward_graph(given)")
    gradients = _gradients(backward, handed_on, views)
    returned = ["None"] * bool(checked) + [gradients.get(role, "None") for role in forward.signature.inputs]
    source.line(2, f"return ({', '.join(returned)},)")
    source.line(1, "@staticmethod  # for whoever records the whole backward of a program")
    taken = [*(f"tangent_{name_of(role)}" for role in visible), *["ticket"] * roots.is_anchored]
    source.line(1, f"def recorded(ctx, {', '.join(taken)}): return recorded_backward({tangents})")


def _emit_unwrapped(source: Source, forward: Program, backward: Program) -> None:
    """Lines that make each tangent a wrapper or none, as the graph takes it."""
    holds_wrappers = has_wrappers(forward) or has_wrappers(backward)
    for role, node in tangents_of(backward).items():
        if is_wrapper(node.meta["val"]):
            name = f"tangent_{name_of(role)}"
            source.line(2, f"{name} = {source.bind('as_recorded', ExpectedWrapper.of(node.meta['val']))}({name})")
        elif holds_wrappers:
            source.line(2, f"tangent_{name_of(role)} = {source.bind('as_plain', as_plain)}(tangent_{name_of(role)})")


def _is_elsewhere(backward: Program) -> bool:
    """Whether a tangent is on a device whose backward has a thread of its own."""
    return any(
        isinstance(role, Tangent) and node.meta["val"].device.type != "cpu"
        for node, role in zip(backward.placeholders, backward.signature.inputs, strict=True)
    )


def _gradients(
    backward: Program, handed_on: Mapping[torch.fx.Node, str], views: Collection[int]
) -> dict[InputRole, str]:
    """What holds the gradient of each input: a value of backward, what it was handed and returns, or a view of that."""
    gradients: dict[InputRole, str] = {}
    for index, (role, node) in enumerate(zip(backward.signature.outputs, backward.returned, strict=True)):
        if isinstance(role, Gradient):
            text = handed_on.get(node, f"values[{index}]") if isinstance(node, torch.fx.Node) else f"values[{index}]"
            gradients[role.of] = f"{text} if view_{index} is None else view_{index}" if index in views else text
    return gradients


def _emit_fitting(source: Source, forward: Program, backward: Program, is_hooked: bool, otherwise: str) -> None:
    """Lines that bring what others may have changed into the form that the graph takes, or leave to `otherwise`.

    Others give the tangents, and can reach the inputs and the results that were saved; hooks give whatever was saved.
    """
    pairs = zip(backward.signature.inputs, backward.placeholders, strict=True)
    taken = {role: node for role, node in pairs if _is_strided(node) and not _is_only_handed_on(node)}
    for role, node in taken.items():
        if isinstance(role, Tangent) and has_symbols(node.meta["val"]):
            name = name_of_argument(role)
            source.line(2, f"{name} = {source.bind('laid_out', laid_out_as(node.meta['val']))}({name})")
    reached = _saved_within_reach(forward)
    changing = [role for role in taken if isinstance(role, Tangent) or role in reached]
    if not taken or not (changing or is_hooked):
        return
    names, few = (", ".join(map(name_of_argument, roles)) for roles in (taken, changing))
    inputs = source.bind("inputs", _inputs_of([taken[role] for role in changing]))
    whole = inputs if len(changing) == len(taken) else source.bind("inputs", _inputs_of(taken.values()))
    test = f"not ({inputs}.check({few}) or {inputs}.look({few}))"
    source.line(2, f"if {'ctx.is_hooked or ' * is_hooked}{test}:")
    source.line(3, f"fitted = {whole}.fitted({names})")
    source.line(3, f"if fitted is None: {otherwise}")
    source.line(3, f"({names},) = fitted")
    source.line(3, "del fitted")


def _inputs_of(nodes: Iterable[torch.fx.Node]) -> ExpectedInputs:
    return ExpectedInputs.of(node.meta["val"] for node in nodes)


def _is_strided(node: torch.fx.Node) -> bool:
    return _is_plain(node) and node.meta["val"].layout is torch.strided


def _is_plain(node: torch.fx.Node) -> bool:
    return is_tensor(node) and not is_wrapper(node.meta["val"])


def _saved_within_reach(forward: Program) -> set[InputRole]:
    """What forward saves of its inputs and of the results that the call returns."""
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    known = {*forward.placeholders, *(part for node in forward.handed_on for part in parts_of(node))}
    return {
        r for r, n in pairs if isinstance(r, Saved) and isinstance(n, torch.fx.Node) and (n in known or is_given(n))
    }


def _handed_on(backward: Program) -> dict[torch.fx.Node, str]:
    """The tangents that are gradients themselves, each with a variable for the very tensor, however it lies: eager's
    gradient is that one."""
    returned = set(backward.returned)
    return {node: f"own_tangent_{name_of(role)}" for role, node in tangents_of(backward).items() if node in returned}


def _is_only_handed_on(tangent: torch.fx.Node) -> bool:
    """Whether nothing computes with a tangent."""
    return bool(tangent.users) and all(user.op == "output" for user in tangent.users)


def partial_backward(
    forward: Program,
    backward: Program,
    build: Callable[[frozenset[Tangent]], tuple[Program, GraphCall]],
    recorded: Callable[..., Sequence[object]] | None = None,
    numbers: Sequence[str] | None = None,
) -> PartialBackward:
    """What the backward of an emitted call runs where some of its tangents are None.

    `build(missing)` is the backward without those tangents, as a program and as a call; `recorded` the one that runs
    operator by operator, for what that call cannot take. `numbers` are those that the call has saved, where it is
    another forward that ran.
    """
    tangents = tangents_of(backward)
    tensors, sizes = saved_names(forward)
    sizes = sizes if numbers is None else [name_of(Saved(name)) for name in numbers]
    roots = {name_of(r): root_of(n) for r, n in zip(forward.signature.outputs, forward.returned, strict=True)}
    checked = saved_as_written(forward)
    gradients: dict[object, tuple[int, frozenset[int]]] = {}
    for index, role in enumerate(backward.signature.outputs):
        assert isinstance(role, Gradient)
        gradients[role.of] = index, frozenset(i for i, tangent in enumerate(tangents) if tangent in role.through)

    def make(given: frozenset[int]) -> Part:
        missing = frozenset(Tangent(role) for index, role in enumerate(tangents) if index not in given)
        program, graph = build(missing)
        arguments = [_place(role, tensors, sizes, list(tangents)) for role in program.signature.inputs]
        read = {roots[tensors[index]] for kind, index in arguments if kind == "saved"}
        return Part(
            graph,
            tuple(arguments),
            tuple(index for index, of in enumerate(checked) if roots_that_are_written(forward, of) & read),
            (*[None] * bool(checked), *(gradients.get(role) for role in forward.signature.inputs)),
            tuple(place for place, node in enumerate(forward.placeholders, bool(checked)) if is_tensor(node)),
            _inputs_of(filter(_is_plain, program.placeholders)),
            frozenset(place for place, node in enumerate(program.placeholders) if is_wrapper(node.meta["val"])),
            _views(program, sizes, list(tangents)),
        )

    examples = [node.meta["val"] for node in tangents.values()]
    holds_wrappers = has_wrappers(forward) or has_wrappers(backward)
    layouts = [_layout_of(value, holds_wrappers) for value in examples]
    zeros = [zeros_around(value) if is_wrapper(value) else zeros_like(value) for value in examples]
    noted = {index: position for position, index in enumerate(saved_noted(forward))}
    return PartialBackward(make, layouts, zeros, check_versions, noted, recorded=recorded)


def _views(program: Program, sizes: list[str], tangents: list[OutputRole]) -> tuple[tuple[int, int, TangentView], ...]:
    """The gradients that are views of a tangent, each by its position and that of the tangent."""
    found = views_of_tangents(program, sizes).items()
    return tuple((place, tangents.index(tangent.of), view) for place, (tangent, view) in found)


def _layout_of(value: torch.Tensor, holds_wrappers: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """What brings a tangent into the form of this one, which a graph with or without wrappers takes."""
    if is_wrapper(value):
        return ExpectedWrapper.of(value)
    lay_out = laid_out_as(value)
    return (lambda tangent: lay_out(as_plain(tangent))) if holds_wrappers else lay_out


def _place(role: object, tensors: list[str], sizes: list[str], tangents: list[OutputRole]) -> tuple[str, int]:
    """An input of backward by its kind and its position among those of that kind."""
    if isinstance(role, Tangent):
        return "tangent", tangents.index(role.of)
    assert isinstance(role, Saved)
    name = name_of(role)
    return ("saved", tensors.index(name)) if name in tensors else ("size", sizes.index(name))
