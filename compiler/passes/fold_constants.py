"""Computes once, when compiling, what depends on no input and costs more to compute again than to read.

    t = sin(arange(64) * 0.1); return x + t[None]   ->   t = get_attr("_folded_t"); return x + t[None]

A value is constant if it is created from numbers, is the copy of a literal (`lift_fresh_copy`), or follows from such
by deterministic operators. Nothing else is known to hold the same numbers at the next call. A constant is folded if it
is small, and if making it would take a kernel of its own, a call, a costly function, or a long chain. What is cheap
becomes part of the kernels that read it. Views stay, as they cost nothing; what they view is folded.

A folded value that the call returns, or that may be written, is copied by each call (law: mutate what a call returned,
and call again). ATen computes the value, so it has eager's bits. Runs last: the passes before it may know a mask by how
it is made.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, has_effect, is_view, producer
from assay.compiler.ir.loops.rewrite import TRANSCENDENTAL
from assay.compiler.ir.tensors.in_place import IS_FOLDED
from assay.compiler.ir.typed_nodes import function_of, node_argument
from assay.compiler.ops.lower import record_of
from assay.compiler.ops.registry import Kind
from assay.compiler.passes.readers import is_dense, may_share

aten = torch.ops.aten
MOST_BYTES = 1 << 20
"""The largest value that is folded, and that a kept call may hold."""
MOST_BYTES_IN_ALL = 1 << 22
"""Bytes of all values that one graph has folded: they stay in memory as long as the compiled graph."""
MOST_BYTES_ON_THE_WAY = 1 << 26
"""The largest value that is computed on the way to one."""
MOST_FREE = 8
"""How many cheap operators are computed again rather than read."""


def fold_constants(program: Program) -> int:
    """Returns the number of values folded. Cost: linear in nodes, and the calls that are folded."""
    found = _constants(program)
    budget, folded = MOST_BYTES_IN_ALL, 0
    for node in _wanted(program, found):
        size = _bytes(node)
        if size > min(budget, MOST_BYTES) or not _pays(node):
            continue
        value = _computed(program, node)
        if value is not None:
            _replace(program, node, value)
            budget, folded = budget - size, folded + 1
    if folded:
        eliminate_dead_nodes(program.module.graph)
    return folded


def _constants(program: Program) -> set[fx.Node]:
    """The calls that depend on no input."""
    found: set[fx.Node] = set()
    for node in program.module.graph.nodes:
        if node.op == "call_function" and _is_repeatable(node):
            inputs = node.all_input_nodes
            if found.issuperset(inputs) or all(map(_is_literal, inputs)):
                found.add(node)
    return found


def _is_repeatable(node: fx.Node) -> bool:
    """Whether a call gives the same numbers at every call of the program, given the same."""
    target = producer(node)[0].target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return not has_effect(node) and "empty" not in str(target) and bool(values) and all(map(_is_plain, values))


def _is_plain(value: object) -> bool:
    """Whether a value is a tensor on the CPU whose sizes are numbers."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in (*value.shape, *value.stride()))


def _is_literal(node: fx.Node) -> bool:
    """Whether a node is a tensor that the program writes down, which nothing but a copy of it can reach."""
    return node.op == "get_attr" and all(user.target is aten.lift_fresh_copy.default for user in node.users)


def _wanted(program: Program, found: set[fx.Node]) -> Iterator[fx.Node]:
    """The last constant values before something that is none, in the order of the graph, behind their views."""
    wanted = {node for node in found if any(user not in found for user in node.users)}
    behind = {_memory_of(node) for node in wanted}
    return (node for node in list(program.module.graph.nodes) if node in behind and node in found)


def _memory_of(node: fx.Node) -> fx.Node:
    """The call that made the memory of a value."""
    while _is_part(node):
        node = node_argument(node, 0)
    return node


def _is_part(node: fx.Node) -> bool:
    """Whether a value is a view of another, or one of several that a call gives."""
    return is_view(producer(node)[0]) and isinstance(node.args[0], fx.Node)


def _bytes(node: fx.Node) -> int:
    """The bytes of a value, of all parts of one that has several."""
    values = torch.utils._pytree.tree_leaves(node.meta["val"])
    return sum(int(value.numel() * value.element_size()) for value in values)


def _pays(node: fx.Node) -> bool:
    """Whether reading the value is cheaper than making it, within the kernels that read it, again."""
    makers = [each for each in _sources(node) if each.op == "call_function" and not _is_part(each)]
    if any(_bytes(maker) > MOST_BYTES_ON_THE_WAY for maker in makers):
        return False
    return len(makers) > MOST_FREE or not all(map(_is_cheap, makers))


def _sources(node: fx.Node) -> list[fx.Node]:
    """A value and all that it is made of, what is read before what reads it."""
    found: dict[fx.Node, None] = {}
    stack = [node]
    while stack:
        missing = [read for read in stack[-1].all_input_nodes if read not in found]
        if missing:
            stack.extend(missing)
        else:
            found[stack.pop()] = None
    return list(found)


def _is_cheap(node: fx.Node) -> bool:
    """Whether a call is computed element by element inside of the kernels that read it."""
    record = record_of(node.target)
    if record is None or record.rule is None or record.kind not in (Kind.creation, Kind.pointwise):
        return False
    return str(node.target).split(".")[1] not in TRANSCENDENTAL


def _computed(program: Program, node: fx.Node) -> torch.Tensor | None:
    """The value; None where it cannot be folded.

    It cannot where computing it raises, as the call will, or where it lies otherwise than recorded. It cannot either
    where it is in no memory as it is: zeros that are only known to be such, or numbers that are marked as conjugate.
    """
    try:
        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            value = _run(program, node, {})
    except Exception:
        return None
    expected = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value._is_zerotensor() or value.is_conj() or value.is_neg():
        return None
    is_same = value.dtype == expected.dtype and value.shape == expected.shape
    return value if is_same and value.stride() == expected.stride() and is_dense(value) else None


def _run(program: Program, node: fx.Node, done: dict[fx.Node, Any]) -> Any:
    """The value of a node, computed with all that it is made of."""
    for each in _sources(node):
        if each.op == "get_attr":
            done[each] = operator.attrgetter(str(each.target))(program.module)
        else:
            args, kwargs = fx.map_arg((each.args, each.kwargs), done.__getitem__)
            done[each] = function_of(each)(*args, **kwargs)
    return done[node]


def _replace(program: Program, node: fx.Node, value: torch.Tensor) -> None:
    """Lets an attribute of the module stand for the node, or a copy of it where somebody may write."""
    graph = program.module.graph
    name = f"_folded_{node.name}"
    while hasattr(program.module, name):
        name += "_"
    setattr(program.module, name, value)
    with graph.inserting_before(node):
        made = graph.create_node("get_attr", name)
        made.meta.update({"val": node.meta["val"], IS_FOLDED: True})
        if _escapes(node):
            made = graph.call_function(aten.clone.default, (made,))
            made.meta["val"] = node.meta["val"]
    replace_node(node, made)


def _escapes(node: fx.Node) -> bool:
    """Whether the memory of a value may be seen outside of the call, or written."""
    pending = [node]
    while pending:
        for user in pending.pop().users:
            if user.op == "output" or has_effect(user):
                return True
            if may_share(user):
                pending.append(user)
    return False
