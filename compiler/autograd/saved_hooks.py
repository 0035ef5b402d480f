"""`packed`: hooks on saved tensors that are graphs, as parts of forward and of backward.

    forward      a = ...                   ->   a = ...; q, s = pack(a), and they are kept for backward
    backward     takes a                   ->   takes q and s; a = unpack(q, s), before a is read

Hooks of any other kind run around the call, as autograd runs them. A pair of `fx.GraphModule` has no effect but what it
returns, so it is recorded once for each value that forward keeps, and fused with what makes and reads that. What is
packed says the option `saved_tensors_hooks`:

    all           whatever forward keeps, as in eager
    no_static     but for parameters and buffers, which stay where they are whether they are packed or not
    donated       but for the caller's tensors and what the call returns: those whose memory is free once packed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from assay.compiler.autograd.partition import Split, viewed
from assay.compiler.errors import HookError, WrapperPacked
from assay.compiler.ir.graph.backward.packed_values import Packed
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Buffer, InputRole, OutputRole, Parameter, Program, Saved
from assay.compiler.ir.graph.trace import Trace, module_of
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, hint
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.ir.typed_nodes import fake_value
from assay.compiler.torch_compat import Decompositions


@dataclass(frozen=True, slots=True)
class GraphHooks:
    """A pair of hooks to be made parts of the graphs, and which values they are for."""

    pack: Callable[[Tensor], Any]
    unpack: Callable[[Any], Tensor]
    which: str

    @staticmethod
    def now(which: str) -> GraphHooks | None:
        """The innermost hooks where the call is made, if both are graphs."""
        found = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if found is None or not all(isinstance(hook, fx.GraphModule) for hook in found):
            return None
        return GraphHooks(*found, which)


def packed(split: Split, hooks: GraphHooks, decompositions: Decompositions) -> tuple[Split, list[Packed]]:
    """The split with the hooks in it, and what forward keeps now in place of what. The split that is given is used up.

    Raises: HookError (a RuntimeError) for a pack hook that writes the tensor it is given. HookError also for an unpack
    hook whose tensor has another dtype, device or shape than the one that was packed. WrapperPacked for a pack hook
    that returns a wrapper.
    """
    chosen = _chosen(split.forward, hooks.which)
    made = {name: _pack(name, node, hooks.pack, decompositions) for name, node in chosen.items()}
    forward = _with_roles(split.forward, made)
    backward = _unpacking(split.backward, chosen, made, hooks.unpack, decompositions)
    return Split(forward, backward, split.decisions), list(made.values())


def _chosen(forward: Program, which: str) -> dict[str, fx.Node]:
    """The values that are packed, by the names under which forward keeps them."""
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    visible = set(map(viewed, forward.handed_on))
    inputs: dict[fx.Node, InputRole] = dict(zip(forward.placeholders, forward.signature.inputs, strict=True))
    found: dict[str, fx.Node] = {}
    for role, node in pairs:
        if not isinstance(role, Saved) or not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), Tensor):
            continue
        if is_wrapper(node.meta["val"]):  # it is kept for its version alone
            continue
        root = viewed(node)
        is_static = isinstance(inputs.get(root), Parameter | Buffer)
        is_held = root in inputs or root in visible
        if which == "all" or (which == "no_static" and not is_static) or (which == "donated" and not is_held):
            found[role.of] = node
    return found


def _pack(name: str, node: fx.Node, hook: Callable[[Tensor], Any], decompositions: Decompositions) -> Packed:
    """The calls of the hook on a value of forward, at the end of its graph."""
    value = fake_value(node)
    trace = Trace(value.fake_mode, decompositions)
    given = trace.add_input("saved", value)
    with trace.recording():
        wrapped = trace.wrap(given, False)
        trace.own(wrapped, hook)
        leaves, structure = pytree.tree_flatten(hook(wrapped))
        for leaf in filter(is_wrapper, leaves):
            raise WrapperPacked(type(leaf).__name__)
        is_written = trace.writes_by(hook) > 0
        traced = [trace.node_of(leaf) for leaf in leaves if isinstance(leaf, (Tensor, *SYMBOLIC))]
    if is_written:
        raise HookError("A saved tensor pack hook is modifying its input in place.")
    fakes = tuple(trace.fake_of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    graph, last = node.graph, next(iter(reversed(node.graph.nodes)))
    copies = _copied(trace.finish(traced), [node], graph, last)
    return Packed(name, copies, fakes, structure)


def _copied(made: fx.GraphModule, given: Sequence[fx.Node], graph: fx.Graph, before: fx.Node) -> tuple[fx.Node, ...]:
    """The calls of a graph, on these values in place of its inputs; returns what it returns."""
    placeholders = [node for node in made.graph.nodes if node.op == "placeholder"]
    copies = dict(zip(placeholders, given, strict=True))
    with graph.inserting_before(before):
        returned: Any = graph.graph_copy(made.graph, copies)
    for node, copy in copies.items():
        if node.op == "get_attr":
            raise HookError(f"a hook on saved tensors that holds a tensor of its own ({node.target})")
        if node not in placeholders:
            copy.meta = dict(node.meta)
    return tuple(returned)


def _with_roles(forward: Program, made: dict[str, Packed]) -> Program:
    """Forward, which returns what is kept in place of values."""
    roles: list[OutputRole] = []
    nodes: list[fx.Node | int | None] = []
    for role, node in zip(forward.signature.outputs, forward.returned, strict=True):
        if isinstance(role, Saved) and role.of in made:
            roles += made[role.of].roles
            nodes += made[role.of].nodes
        else:
            roles.append(role)
            nodes.append(node)
    graph = forward.module.graph
    next(iter(reversed(graph.nodes))).args = (nodes,)
    return Program(module_of(forward.module, graph), replace(forward.signature, outputs=tuple(roles)))


def _unpacking(
    backward: Program,
    chosen: dict[str, fx.Node],
    made: dict[str, Packed],
    hook: Callable[[Any], Tensor],
    decompositions: Decompositions,
) -> Program:
    """Backward, which takes what is kept in place of values, and unpacks each before its first reader."""
    graph, roles = backward.module.graph, list[InputRole]()
    for role, placeholder in zip(backward.signature.inputs, backward.placeholders, strict=True):
        if not isinstance(role, Saved) or role.of not in made:
            roles.append(role)
            continue
        instead = made[role.of]
        roles += instead.roles
        with graph.inserting_before(placeholder):
            given = [graph.placeholder(kept.of) for kept in instead.roles]
        for node, of in zip(given, instead.nodes, strict=True):
            node.meta["val"] = of.meta["val"]
        readers = [node for node in graph.nodes if placeholder in node.all_input_nodes]
        if readers:
            value = _unpack(chosen[role.of].meta["val"], instead, given, hook, readers[0], decompositions)
            replace_node(placeholder, value)
        graph.erase_node(placeholder)
    return Program(module_of(backward.module, graph), replace(backward.signature, inputs=tuple(roles)))


def _unpack(
    expected: FakeTensor,
    instead: Packed,
    given: Sequence[fx.Node],
    hook: Callable[[Any], Tensor],
    reader: fx.Node,
    decompositions: Decompositions,
) -> fx.Node:
    """The calls of the hook before a reader. The result has the strides that backward was recorded with."""
    trace = Trace(expected.fake_mode, decompositions)
    numbered = iter(range(len(given)))
    leaves = [
        trace.add_input(f"packed_{next(numbered)}", leaf)  # type: ignore[type-var]
        if isinstance(leaf, (Tensor, *SYMBOLIC))
        else leaf
        for leaf in instead.leaves
    ]
    with trace.recording():
        wrapped = [trace.wrap(leaf, False) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        result = hook(pytree.tree_unflatten(wrapped, instead.structure))
        if not isinstance(result, Tensor):
            raise HookError(f"Output of saved tensor unpack hook is a {type(result).__name__}, expected a tensor")
        _check_unpacked(result, expected)
        order = sorted(range(expected.dim()), key=lambda dim: -hint(expected.stride()[dim]))
        inverse = [order.index(dim) for dim in range(len(order))]
        if tuple(result.stride()) != tuple(expected.stride()):
            result = result.permute(order).contiguous().permute(inverse)
        returned = trace.node_of(result)
    (node,) = _copied(trace.finish([returned]), given, reader.graph, reader)
    return node


def _check_unpacked(result: Tensor, expected: Tensor) -> None:
    for what in ("dtype", "device", "shape"):
        found, wanted = getattr(result, what), getattr(expected, what)
        if found != wanted:
            raise HookError(f"a saved tensor unpack hook gives a {what} of {found}, where {wanted} was packed")
