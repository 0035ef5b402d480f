"""`partition`: a joint graph into forward and backward, and what forward saves for backward.

default     save what backward reads; in backward, make again only views and values that read no tensor
cheapest    (rematerialize.py) compute again what costs less so than to keep it
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from assay.compiler.autograd.rematerialization.random_replay import draw_again, is_replayable, keep_states
from assay.compiler.autograd.rematerialization.recompute_cost import bytes_of, is_measurable
from assay.compiler.errors import VerifyError
from assay.compiler.ir.graph.decisions import Decision, Reason, Why
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Gradient, InputRole, Mutation, OutputRole, Program, Saved, Signature, Tangent
from assay.compiler.ir.graph.trace import (
    HELD,
    IN_BACKWARD,
    READS_STASHED,
    RECOMPUTED,
    STANDS_FOR,
    STASHED,
    SYMBOLIC,
    UNCHECKED,
    gives_memory_on,
    has_effect,
    is_random,
    module_of,
    producer,
)
from assay.compiler.ir.tensors.layout.strides import has_symbols, may_be_same
from assay.compiler.ir.tensors.wrappers import inner_tensor

COPY = "is_copy_for_backward"
"""Marks copies that are there for backward alone."""
Returned = fx.Node | int | None
Explain = Callable[[fx.Node, set[fx.Node], set[fx.Node]], Why]
"""Why a value of forward that backward needs is what it is, given all that are saved and all that are made again."""


@dataclass(frozen=True, slots=True)
class Split:
    """Two programs. Forward returns `Saved` values, in the order in which backward takes them.

    `decisions` says of each value of forward that backward needs why it is saved, or made again.
    """

    forward: Program
    backward: Program
    decisions: Callable[[], Sequence[Decision]] = tuple


def default_split(joint: Program) -> Split:
    """Saves what backward reads. Nothing is computed again but views, sizes and values made of constants."""
    return split(joint, is_free)


def as_read(node: fx.Node, saved: set[fx.Node], again: set[fx.Node]) -> Why:
    """Why, where nothing is chosen: what backward reads is saved, but for what is free."""
    return Why(Reason.read if node in saved else Reason.free)


def split(joint: Program, recompute: Callable[[fx.Node], bool], explain: Explain = as_read) -> Split:
    """The cut in which backward makes `recompute` nodes again and every other value that it reads is saved.

    Cost: linear in the joint graph's nodes and edges.
    """
    signature = joint.signature
    gradients, kept = _outputs(joint)
    order = {node: position for position, node in enumerate(joint.module.graph.nodes)}
    before, after, saved = halves(joint, recompute)
    saved |= _parts_beside(saved, before)
    _remove_copies(joint, saved)
    layouts = _layout_sizes(joint, after, saved)
    order |= {size: order[of] for size, of in layouts.items()}
    before |= layouts.keys()
    saved |= layouts.keys()
    saved_roles = _saved_roles(sorted(saved, key=order.__getitem__))
    tangents = [r for r in signature.inputs if isinstance(r, Tangent)]
    drawn = [node for node in joint.module.graph.nodes if node in after and node in before and is_random(node)]
    if not all(map(is_replayable, drawn)):
        raise VerifyError("partition: backward would draw random numbers that forward has drawn")
    for node in saved:
        readers = [user.meta.get("custom", ()) for user in node.users if user in after]
        if STASHED in node.meta and all(READS_STASHED in custom for custom in readers):
            node.meta[UNCHECKED] = True
    called = replace(signature, inputs=_inputs(signature, tangents=False))
    forward = _extract(joint, before, {**kept, **dict(saved_roles)}, called, {})
    taken: dict[InputRole, fx.Node] = {**dict(saved_roles), **_placeholders(joint, tangents)}
    backward = _extract(joint, after, gradients, Signature(tuple(taken), ()), {n: r for r, n in taken.items()}, before)
    forward, states = keep_states(forward, [node.name for node in drawn])
    backward = draw_again(backward, states, len(saved_roles))
    return Split(forward, backward, lambda: list(_decisions(joint, after, saved, before & after, explain)))


def split_at(joint: Program, names: Collection[str], known: Mapping[str, object] = MappingProxyType({})) -> Split:
    """The cut at which values of these names are saved. Backward makes all others again, inputs apart.

    `known` are the numbers among them, as they were recorded before: a number that is one of these takes its name.
    """
    _name_numbers(joint, known)

    def recompute(node: fx.Node) -> bool:
        return node.op != "placeholder" and not {node.name, node.meta.get(STANDS_FOR, node.name)} & set(names)

    return split(joint, recompute)


def _name_numbers(joint: Program, known: Mapping[str, object]) -> None:
    """Gives numbers the names that they have in another recording, one node for each. Which node is named first depends
    on what was recorded first, so that a name may be that of another size there."""
    symbols = {name: number for name, number in known.items() if isinstance(number, torch.SymInt)}
    named = dict[str, fx.Node]()
    for node in joint.module.graph.nodes:
        number = node.meta.get("val")
        if not isinstance(number, torch.SymInt):
            continue
        name = next((name for name, symbol in symbols.items() if may_be_same(symbol, number)), None)
        if name in named:
            node.replace_all_uses_with(named[name])
        elif name is not None:
            named[name] = node
    for node in joint.module.graph.nodes:
        if node.name in symbols and named.get(node.name) is not node:
            node.name = f"{node.name}_of_this"
    for name, node in named.items():
        node.name = name


def _saved_roles(saved: Sequence[fx.Node]) -> list[tuple[Saved, fx.Node]]:
    """What forward keeps, by name: an input that a region returns by the name of the input, if that is not kept too."""
    names = {node.name for node in saved}
    stands_for = [node.meta.get(STANDS_FOR, node.name) for node in saved]
    return [(Saved(node.name if name in names else name), node) for name, node in zip(stands_for, saved, strict=True)]


def halves(joint: Program, recompute: Callable[[fx.Node], bool]) -> tuple[set[fx.Node], set[fx.Node], set[fx.Node]]:
    """What forward computes, what backward does, and the values that it is given for it."""
    before = _forward_nodes(joint)
    gradients, _ = _outputs(joint)
    after, saved = _backward_nodes(joint, gradients.values(), before | _known_sizes(joint, before), recompute)
    return before | ancestors(saved), after, saved


def _remove_copies(joint: Program, saved: set[fx.Node]) -> None:
    """Takes out the copies for backward that it is not given."""
    for node in joint.module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default):
        if COPY in node.meta and node not in saved:
            exchange_names(node, node.args[0])
            replace_node(node, node.args[0])
            joint.module.graph.erase_node(node)


def exchange_names(a: fx.Node, b: fx.Node) -> None:
    a.name, b.name = b.name, a.name


def _parts_beside(saved: set[fx.Node], before: set[fx.Node]) -> set[fx.Node]:
    """The other parts of a factorization of which some part is saved, where they are no larger.

    Eager saves them all, as gradients of gradients need them. Backward itself reads only the vectors of singular
    values and eigenvalues.
    """
    found: set[fx.Node] = set()
    for node in saved:
        call, _ = producer(node)
        if call is node or not _name_of(call).removeprefix("_").startswith("linalg_") or not is_measurable(node):
            continue
        parts = (part for part in call.users if part in before and is_measurable(part))
        found |= {part for part in parts if bytes_of(part.meta["val"]) <= bytes_of(node.meta["val"])}
    return found


def _name_of(call: fx.Node) -> str:
    target = call.target
    return str(target._opname) if isinstance(target, torch._ops.OpOverload) else ""


def demands(joint: Program) -> tuple[set[fx.Node], set[fx.Node]]:
    """What forward computes in any case, and what backward reads of that and of the inputs: the default cut."""
    before = _forward_nodes(joint)
    gradients, _ = _outputs(joint)
    _, saved = _backward_nodes(joint, gradients.values(), before | _known_sizes(joint, before), is_free)
    return before, saved


def _outputs(joint: Program) -> tuple[dict[OutputRole, Returned], dict[OutputRole, Returned]]:
    """The gradients, which backward returns, and what forward returns."""
    roles = dict(zip(joint.signature.outputs, joint.returned, strict=True))
    gradients: dict[OutputRole, Returned] = {r: node for r, node in roles.items() if isinstance(r, Gradient)}
    return gradients, {role: node for role, node in roles.items() if role not in gradients}


def _forward_nodes(joint: Program) -> set[fx.Node]:
    """What forward computes whatever is saved."""
    _, kept = _outputs(joint)
    nodes = joint.module.graph.nodes
    backward_only = _dependents(joint)
    effects = (node for node in nodes if node.op == "call_function" and has_effect(node) and node not in backward_only)
    before = ancestors([*kept.values(), *effects])
    return before | {node for node in nodes if producer(node)[0] in before}


def _known_sizes(joint: Program, before: set[fx.Node]) -> set[fx.Node]:
    """The sizes that forward could compute of what it has: backward is given them, not the tensors they are of."""
    given = {r for r in joint.signature.inputs if not isinstance(r, Tangent)}
    known = before | set(_placeholders(joint, given).values())
    for node in joint.module.graph.nodes:
        if isinstance(node.meta.get("val"), SYMBOLIC) and known.issuperset(node.all_input_nodes):
            known.add(node)
    return {node for node in known if node.op != "placeholder"}


def is_free(node: fx.Node) -> bool:
    """Whether computing the node again costs no memory traffic: views, sizes, and values that read no tensor.

    Not a view of an input: eager saves the view, which outlives that the input is given other memory (`.data = ...`).
    """
    call, _ = producer(node)
    if call.op == "get_attr":  # a function or an object, which both halves hold; a tensor may be another one later
        return not isinstance(call.meta.get("val"), torch.Tensor)
    if call.op != "call_function" or is_random(call):
        return False
    if isinstance(node.meta.get("val"), SYMBOLIC):  # arithmetic is free, and what is read off a tensor is not
        return all(isinstance(read.meta.get("val"), SYMBOLIC) for read in call.all_input_nodes)
    if call.target is inner_tensor:  # later it may be another one
        return False
    if gives_memory_on(call):
        return viewed(call).op != "placeholder" or has_symbols(node.meta.get("val"))
    return not any(isinstance(n.meta.get("val"), torch.Tensor) for n in call.all_input_nodes)


def viewed(call: fx.Node) -> fx.Node:
    """What a chain of views begins with: the view itself where it is one of a number, as the conjugate of a factor."""
    while gives_memory_on(call) and isinstance(call.args[0], fx.Node):
        call, _ = producer(call.args[0])
    return call


def ancestors(nodes: Iterable[fx.Node | int | None]) -> set[fx.Node]:
    """The nodes and everything that they read, directly or not."""
    seen: set[fx.Node] = set()
    stack = [node for node in nodes if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.all_input_nodes)
    return seen


def _dependents(joint: Program) -> set[fx.Node]:
    """The nodes that follow from a tangent, or from an effect of backward's."""
    tangents = [role for role in joint.signature.inputs if isinstance(role, Tangent)]
    found = set(_placeholders(joint, tangents).values())
    for node in joint.module.graph.nodes:
        if IN_BACKWARD in node.meta or any(argument in found for argument in node.all_input_nodes):
            found.add(node)
    return found


def _backward_nodes(
    joint: Program,
    gradients: Iterable[fx.Node | int | None],
    before: set[fx.Node],
    recompute: Callable[[fx.Node], bool],
) -> tuple[set[fx.Node], set[fx.Node]]:
    """The calls that backward makes, and the values that it must be given."""
    tangents = set(_placeholders(joint, [r for r in joint.signature.inputs if isinstance(r, Tangent)]).values())
    after: set[fx.Node] = set()
    saved = _held(joint)
    stack = [node for node in (*gradients, *_effects_of_backward(joint, before)) if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node in after or node in saved or node in tangents:
            continue
        available = node in before or node.op == "placeholder"
        if available and not recompute(node) and not _is_several(node):
            saved.add(node)
            continue
        after.add(node)
        stack.extend(node.all_input_nodes)
    return after, saved


def _held(joint: Program) -> set[fx.Node]:
    """The inputs, and their views, that eager's backward holds on to; not those that the call writes, of which it would
    take a copy. Of a view that is free to make again, the input."""
    written = {role.of for role in joint.signature.outputs if isinstance(role, Mutation)}
    roles = zip(joint.signature.inputs, joint.placeholders, strict=True)
    kept = {node for role, node in roles if role not in written}
    held = (node for node in joint.module.graph.nodes if HELD in node.meta and viewed(node) in kept)
    return {viewed(node) if is_free(node) else node for node in held}


def _effects_of_backward(joint: Program, before: set[fx.Node]) -> Iterator[fx.Node]:
    """The calls that backward makes although nothing reads them: to raise, or to draw."""
    for node in joint.module.graph.nodes:
        if node.op == "call_function" and has_effect(node) and node not in before:
            yield node


def _layout_sizes(joint: Program, after: set[fx.Node], saved: set[fx.Node]) -> dict[fx.Node, fx.Node]:
    """The symbols in backward's layouts that nothing else tells it, as values of their own, by the input of the call
    that has them. The input itself is not saved for them: it may be large, and may be written before backward.
    """
    placeholders = _placeholders(joint, joint.signature.inputs)
    tangents = [node for role, node in placeholders.items() if isinstance(role, Tangent)]
    inputs = [node for role, node in placeholders.items() if not isinstance(role, Tangent)]
    needed = {name for node in (*after, *saved, *tangents) for name in _symbols_of(node.meta.get("val"))}
    known = {name for node in (*saved, *tangents) for name in _plain_symbols(node.meta.get("val"))}
    found: dict[fx.Node, fx.Node] = {}
    for node in sorted(inputs, key=lambda node: isinstance(node.meta.get("val"), torch.Tensor)):
        for size, call in _sizes_told_by(node):
            if _plain_symbols(size) & (needed - known):
                found[_size_node(joint, size, call) if call else node] = node
                known |= _plain_symbols(size)
    return found


def _sizes_told_by(node: fx.Node) -> Iterator[tuple[object, tuple[object, ...]]]:
    """What an input tells of sizes, each with the call that reads it off; an integer is one itself."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        yield value, ()
        return
    yield from ((size, (torch.ops.aten.sym_size.int, node, dim)) for dim, size in enumerate(value.shape))
    yield from ((step, (torch.ops.aten.sym_stride.int, node, dim)) for dim, step in enumerate(value.stride()))
    yield value.storage_offset(), (torch.ops.aten.sym_storage_offset.default, node)


def _size_node(joint: Program, size: object, call: tuple[Any, ...]) -> fx.Node:
    with joint.module.graph.inserting_after(joint.placeholders[-1]):
        node = joint.module.graph.call_function(call[0], call[1:])
    node.meta["val"] = size
    return node


def _symbols_of(value: object) -> set[str]:
    """The symbols in a value's layout, or in each layout of several values."""
    if isinstance(value, (tuple, list)):
        return {name for item in value for name in _symbols_of(item)}
    sizes = (*value.shape, *value.stride(), value.storage_offset()) if isinstance(value, torch.Tensor) else (value,)
    return {str(symbol) for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}


def _plain_symbols(value: object) -> set[str]:
    """The symbols that a value is, or has as a size."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return {str(size.node.expr) for size in sizes if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol}


def _is_several(node: fx.Node) -> bool:
    """A call that returns several values is not a value itself; its parts are saved."""
    return isinstance(node.meta.get("val"), (tuple, list))


def _inputs(signature: Signature, *, tangents: bool) -> tuple[InputRole, ...]:
    return tuple(role for role in signature.inputs if isinstance(role, Tangent) == tangents)


def _placeholders(joint: Program, roles: Iterable[InputRole]) -> dict[InputRole, fx.Node]:
    wanted = set(roles)
    pairs = zip(joint.signature.inputs, joint.placeholders, strict=True)
    return {role: node for role, node in pairs if role in wanted}


def _extract(
    joint: Program,
    nodes: set[fx.Node],
    outputs: dict[OutputRole, fx.Node | int | None],
    call: Signature,
    renamed: dict[fx.Node, InputRole],
    before: set[fx.Node] | None = None,
) -> Program:
    """The sub-program over `nodes`, with the inputs of `call`.

    `renamed` are values of the joint graph that become inputs. `before`, given for backward, is what forward computed.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    first = list(renamed) or list(_placeholders(joint, call.inputs).values())
    for node in first:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    order = joint.module.graph.nodes if before is None else late(joint, nodes)
    for node in order:
        if node in nodes and node not in copies and node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if before is not None and node in before:
                copies[node].meta[RECOMPUTED] = True
    graph.output([copies[node] if isinstance(node, fx.Node) else node for node in outputs.values()])
    return Program(module_of(joint.module, graph), replace(call, outputs=tuple(outputs)))


def late(joint: Program, nodes: set[fx.Node]) -> Iterator[fx.Node]:
    """What backward computes, in the joint graph's order; what no tangent leads to, right before its first reader."""
    dependents = _dependents(joint)
    places = {node: place for place, node in enumerate(joint.module.graph.nodes)}
    done: set[fx.Node] = set()
    for node in sorted(places, key=lambda node: node not in dependents):
        if node in nodes and node not in done:
            yield from sorted(_still_needed(node, nodes, done), key=places.__getitem__)


def _still_needed(node: fx.Node, nodes: set[fx.Node], done: set[fx.Node]) -> Iterator[fx.Node]:
    """A node, and which of the others must be computed before it. Each is done from then on."""
    pending = [node]
    done.add(node)
    while pending:
        yield (last := pending.pop())
        missing = {read for read in last.all_input_nodes if read in nodes and read not in done}
        done |= missing
        pending.extend(missing)


# ---- what was decided, for whoever asks


def _decisions(
    joint: Program, after: set[fx.Node], saved: set[fx.Node], again: set[fx.Node], explain: Explain
) -> Iterator[Decision]:
    held: set[fx.Node] = set()
    for node in joint.module.graph.nodes:
        if node not in saved and node not in again:
            continue
        value, root = node.meta.get("val"), viewed(node)
        own = bytes_of(value) if is_measurable(node) else 0
        is_own = node in saved and root.op != "placeholder" and root not in held
        held |= {root} if node in saved else set()
        why = Why(Reason.size) if isinstance(value, SYMBOLIC) else explain(node, saved, again)
        module, line = _place_of(node)
        readers = tuple(user.name for user in node.users if user in after)
        yield Decision(
            node.name, _call_text(node), node in saved, why,
            _shape_text(value), own, _memory_of(root, own) if is_own else 0, module, line, readers,
        )  # fmt: skip


def _memory_of(root: fx.Node, own: int) -> int:
    """The bytes that are kept where a value is: all of that which it is a view of."""
    return max(own, bytes_of(root.meta["val"])) if is_measurable(root) else own


def _call_text(node: fx.Node) -> str:
    """The operator that computes a value, with its place among those that the call returns."""
    call, path = producer(node)
    if call.op != "call_function":
        return "input"
    return str(call.target) + "".join(f"[{index}]" for index in path)


def _shape_text(value: object) -> str:
    """`float32[4, 6]`; the type of what is no tensor."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _place_of(node: fx.Node) -> tuple[str, str]:
    """The module that made a value, `encoder.layer.0`, and the line, `model.py:106`; each empty where it is unknown."""
    stack = [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]
    module = re.sub(r"L\['(\w+)'\]\.?|\['(\w+)'\]", r"\2", stack[-1]) if stack else ""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return module, f"{lines[-1][0].rpartition('/')[2]}:{lines[-1][1]}" if lines else ""
