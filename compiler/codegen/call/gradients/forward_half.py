"""The forward of a call that records gradients: what it saves, and the roots of its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from assay.compiler.codegen.call.graph_run import emit_run
from assay.compiler.codegen.call.prologue import AmbientNeeds, scatters_by_strides
from assay.compiler.codegen.call.source import Source, is_tensor, name_of
from assay.compiler.ir.graph.roles import (
    CallInput,
    Freed,
    InputRole,
    Mutation,
    OutputRole,
    Parameter,
    Program,
    Saved,
    Shared,
    Size,
    Tangent,
)
from assay.compiler.ir.graph.trace import UNCHECKED, is_view
from assay.compiler.ir.graph.wrapper_nodes import parts_of
from assay.compiler.ir.tensors.layout.strides import may_be_same, varying
from assay.compiler.ir.tensors.wrappers import inner_tensor, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument
from assay.compiler.runtime.call import copy_as_it_lies, hooks_now, note_varying, without_history
from assay.compiler.runtime.expected_wrappers import form_of
from assay.compiler.runtime.higher_order import Roots, new_anchor
from assay.compiler.torch_compat import BEFORE_2_13


def emit_forward_half(source: Source, forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots) -> None:
    signature = forward.signature
    visible = signature.handed_on
    fixed = [name_of(r) for r in visible if r not in signature.differentiable and not isinstance(r, Size)]
    source.line(1, "@staticmethod")
    checked = saved_as_written(forward)
    source.line(1, f"def forward(ctx, {'written, ' if checked else ''}*args):")
    if checked:
        source.line(2, "ctx.written = written")
    below = AmbientNeeds(grad_off=False, autocast_off=needs.autocast_off)  # autograd turns gradients off in here
    is_bare = scatters_by_strides(forward)
    given = f"{source.bind('without_history', without_history)}(args)" if is_bare else "list(args)"
    _inner_run(source, forward, f"forward_graph({given})", below)
    tensors, sizes = saved_names(forward)
    written = _saved_and_written(forward)
    copied = source.bind("copy_as_it_lies", copy_as_it_lies) if written else ""
    unchecked = _saved_unchecked(forward)
    if is_bare:  # what the graph was given leads nowhere
        for name, place in _saved_inputs(forward).items():
            source.line(2, f"{name} = args[{place}]")
    kept = [f"{copied}({name})" if name in written else name + ".data" * (name in unchecked) for name in tensors]
    anchor = ["anchor"] * roots.is_anchored
    if not tensors and not anchor and is_freed(forward):
        kept = [source.bind("freed", torch.empty(0))]
    if anchor:
        are_leaves = " and ".join(f"args[{index}].is_leaf" for index in _behind(forward, roots))
        source.line(2, f"anchor = None if {are_leaves} else {source.bind('new_anchor', new_anchor)}()")
    _note_varying(source, forward)
    source.line(2, f"ctx.save_for_backward({', '.join([*kept, *anchor])})")
    if tensors and not needs.hooks_off:
        source.line(2, f"ctx.is_hooked = {source.bind('hooks_now', hooks_now)}(True) is not None")
    if sizes:
        source.line(2, f"ctx.sizes = ({''.join(size + ', ' for size in sizes)})")
    if roots.sizes:
        given = "".join(f"args[{i}]" + (f".size({dim})" if dim is not None else "") + ", " for i, dim in roots.sizes)
        source.line(2, f"ctx.at = ({given})")
    source.line(2, "ctx.set_materialize_grads(False)")
    shapes = [_shape_text(source, role, node) + ", " for role, node in tangents_of(backward).items()]
    if len(shapes) > 1:
        source.line(2, f"ctx.shapes = ({''.join(shapes)})")
        if noted := saved_noted(forward):
            source.line(2, f"ctx.versions = ({''.join(tensors[index] + '._version, ' for index in noted)})")
    if fixed:
        source.line(2, f"ctx.mark_non_differentiable({', '.join(fixed)})")
    source.line(2, f"return ({''.join(name_of(role) + ', ' for role in visible)}{''.join(anchor)})")


def _note_varying(source: Source, forward: Program) -> None:
    """Hooks on saved tensors are told of sizes that are symbols, as whoever is given results is."""
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    saved = {
        name_of(role): varying(node.meta["val"]) for role, node in pairs if isinstance(role, Saved) and is_tensor(node)
    }
    notes = [
        f"{source.bind('note_varying', note_varying)}({name}, {{*{dims}}})" for name, dims in saved.items() if dims
    ]
    if notes and not BEFORE_2_13:
        source.line(2, f"if {source.bind('hooks_now', hooks_now)}(True) is not None: {'; '.join(notes)}")


def _shape_text(source: Source, role: OutputRole, node: torch.fx.Node) -> str:
    """What zeros in the place of a missing tangent are made by."""
    if is_wrapper(node.meta["val"]):
        return f"{source.bind('form_of', form_of)}({name_of(role)})"
    return f"{name_of(role)}.shape"


def is_freed(forward: Program) -> bool:
    """Whether a second backward is an error, though nothing is saved for the first."""
    return any(isinstance(effect, Freed) for effect in forward.signature.effects)


def _inner_run(source: Source, forward: Program, run: str, needs: AmbientNeeds) -> None:
    inner = Source(namespace=source.namespace)
    emit_run(inner, forward, forward.signature.outputs, run, needs)
    source.lines.extend("    " + line for line in inner.lines)


@dataclass(frozen=True, slots=True)
class SavedValues:
    """What a forward saves, by name: tensors, and integers and floats, each in order. `symbols` are the numbers as they
    were recorded."""

    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    symbols: tuple[object, ...] = field(default=(), compare=False)

    @staticmethod
    def of(forward: Program) -> SavedValues:
        pairs = zip(forward.signature.outputs, forward.returned, strict=True)
        saved = [(role.of, node) for role, node in pairs if isinstance(role, Saved)]
        tensors = tuple(name for name, node in saved if is_tensor(node))
        numbers = [(name, node) for name, node in saved if not is_tensor(node)]
        symbols = tuple(node.meta.get("val") if isinstance(node, fx.Node) else node for _, node in numbers)
        return SavedValues(tensors, tuple(name for name, _ in numbers), symbols)

    @property
    def names(self) -> tuple[str, ...]:
        return self.tensors + self.numbers

    def are_enough_for(self, other: SavedValues) -> bool:
        """Whether a backward of the other forward can run on these: a number that it does not read is no harm. Two
        recordings may give one name to different sizes."""
        mine, asked = self.known(), other.known()
        are_known = all(name in mine and may_be_same(mine[name], number) for name, number in asked.items())
        return self.tensors == other.tensors and are_known

    def known(self) -> dict[str, object]:
        """The numbers by their names, as they were recorded; None for those that were not."""
        return dict(itertools.zip_longest(self.numbers, self.symbols))


def saved_names(forward: Program) -> tuple[list[str], list[str]]:
    """Variables of the saved tensors and of the saved numbers, each in order."""
    saved = SavedValues.of(forward)
    tensors, numbers = ([name_of(Saved(name)) for name in names] for names in (saved.tensors, saved.numbers))
    return tensors, numbers


def _saved_inputs(forward: Program) -> dict[str, int]:
    """Variables of the saved tensors that are inputs, each with its position among these."""
    places = {node: place for place, node in enumerate(forward.placeholders)}
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    saved = [(name_of(role), node) for role, node in pairs if isinstance(role, Saved) and is_tensor(node)]
    return {name: places[node] for name, node in saved if node in places}


def _saved_and_written(forward: Program) -> set[str]:
    """Saved inputs that the epilogue will write: backward needs the value from before, which eager copies too.

    Where eager would have saved the input itself, recording the gradients has failed as eager's backward does.
    """
    mutated = {role.of for role in forward.signature.outputs if isinstance(role, Mutation)}
    inputs = zip(forward.signature.inputs, forward.placeholders, strict=True)
    written = {node for role, node in inputs if role in mutated or (isinstance(role, Shared) and mutated & {*role.of})}
    outputs = zip(forward.signature.outputs, forward.returned, strict=True)
    return {name_of(role) for role, node in outputs if isinstance(role, Saved) and root_of(node) in written}


def _saved_unchecked(forward: Program) -> set[str]:
    """Saved tensors that eager keeps as attributes of a context: writing them before backward raises nothing."""
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    return {name_of(role) for role, node in pairs if isinstance(role, Saved) and is_tensor(node)
            and UNCHECKED in node.meta}  # fmt: skip


def saved_as_written(forward: Program) -> list[CallInput | Shared]:
    """The inputs whose value after their writes backward needs: it is the caller's tensor that eager would have saved.

    What the graph saves is a value of its own, so a later write to that tensor has to be noticed by its version.
    """
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    saved = {root_of(node) for role, node in pairs if isinstance(role, Saved)}
    return [role.of for role, node in pairs if isinstance(role, Mutation) and _roots_inside(node) & saved]


def root_of(node: torch.fx.Node | int | None) -> torch.fx.Node | int | None:
    """The call behind a chain of views, or the wrapper that holds what they are views of."""
    while isinstance(node, torch.fx.Node) and (is_view(node) or node.target is inner_tensor):
        node = node_argument(node, 0)
    return node


def _roots_inside(node: torch.fx.Node | int | None) -> set[torch.fx.Node | int | None]:
    """The root of a value; of a wrapper that the graph makes, those of its inner tensors."""
    return {root_of(inner) for inner in parts_of(node)} if isinstance(node, torch.fx.Node) else {node}


def roots_of(forward: Program, leaves: Sequence[InputRole], sizes: Iterable[tuple[int, int | None]] = ()) -> Roots:
    """Where gradients of gradients find the inputs that the call has gradients of, and its symbolic sizes: each is an
    input, by its position, or one of its dimensions."""
    inputs, first = forward.signature.inputs, int(bool(saved_as_written(forward)))
    tensors, _ = saved_names(forward)
    copied = _saved_and_written(forward) | _saved_unchecked(forward)
    nodes = dict(zip(inputs, forward.placeholders, strict=True))
    among = {role: index for index, role in enumerate(role for role in inputs if is_tensor(nodes[role]))}
    sources: list[int | None] = []
    is_anchored = False
    for leaf in leaves:
        saved = name_of(Saved(nodes[leaf].name))
        if saved in tensors and saved not in copied:
            sources.append(tensors.index(saved))
        else:
            sources.append(None)
            is_anchored = is_anchored or not isinstance(leaf, Parameter)
    places = tuple(first + inputs.index(leaf) for leaf in leaves)
    behind = tuple(among[leaf] for leaf in leaves)
    return Roots(places, first + len(inputs), tuple(sources), behind, is_anchored, tuple(sizes))


def _behind(forward: Program, roots: Roots) -> Iterator[int]:
    """The inputs that gradients of gradients find behind the node, if they are leaves; parameters are."""
    first = int(bool(saved_as_written(forward)))
    for place, saved in zip(roots.places, roots.sources, strict=True):
        if saved is None and not isinstance(forward.signature.inputs[place - first], Parameter):
            yield place - first


def saved_noted(forward: Program) -> list[int]:
    """The positions of those saved tensors that the autograd function returns as well.

    Where torch cannot unpack one of them by itself, and so looks at no version of it, these are all that are no
    copies.
    """
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    copied = _saved_and_written(forward)
    visible = set(forward.handed_on)
    saved = [(name_of(role), node) for role, node in pairs if isinstance(role, Saved) and is_tensor(node)]
    return [
        index
        for index, (name, node) in enumerate(saved)
        if UNCHECKED not in node.meta and (node in visible or (BEFORE_2_13 and name not in copied))
    ]


def roots_that_are_written(forward: Program, of: CallInput | Shared) -> set[torch.fx.Node | int | None]:
    """What holds the value of an input after its writes."""
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    return next(_roots_inside(node) for role, node in pairs if isinstance(role, Mutation) and role.of == of)


def tangents_of(backward: Program) -> dict[OutputRole, torch.fx.Node]:
    """The outputs whose gradient backward takes, each with its placeholder."""
    pairs = zip(backward.signature.inputs, backward.placeholders, strict=True)
    return {role.of: node for role, node in pairs if isinstance(role, Tangent)}
