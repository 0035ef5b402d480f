"""Every cut of a small joint graph, tried: by the bytes that it saves, and by what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.roles import Gradient, Program, Tangent

Costs = Callable[[fx.Node], tuple[int, int]]
"""What it costs to keep a value, and to compute it again from what it reads."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Values that forward saves; backward computes everything else that it needs from them and the tangents."""

    saved: frozenset[str]
    saved_bytes: int


def cuts(joint: Program, *, most: int = 16) -> Iterator[Cut]:
    """Every set of forward values from which, with the tangents, all gradients can be computed.

    Raises: ValueError for more than `most` candidate values: there are 2**n cuts.
    """
    tangents = {node for role, node in _inputs(joint) if isinstance(role, Tangent)}
    dependent = _dependents(joint, tangents)
    candidates = [n for n in joint.module.graph.nodes if n not in dependent and _is_tensor(n)]
    if len(candidates) > most:
        raise ValueError(f"cuts: {len(candidates)} values make too many cuts; the limit is {most}")
    for chosen in _subsets(candidates):
        saved = frozenset(node.name for node in chosen)
        if _reaches(joint, set(chosen) | tangents):
            yield Cut(saved, sum(_bytes(node) for node in chosen))


def cheapest(joint: Program) -> Cut:
    """The cut that saves the fewest bytes."""
    return min(cuts(joint), key=lambda cut: (cut.saved_bytes, len(cut.saved), sorted(cut.saved)))


def cheapest_of(costs: Costs, wanted: Sequence[fx.Node], choices: Sequence[fx.Node], free: frozenset[fx.Node]) -> int:
    """The least cost of a backward that is to know the `wanted` values of forward, over every set of `choices` that it
    may compute again; `free` values are computed again wherever they are needed."""
    return min(cost_of(costs, wanted, free | set(chosen)) for chosen in _subsets(choices))


def cost_of(costs: Costs, wanted: Sequence[fx.Node], again: frozenset[fx.Node]) -> int:
    """What it costs to keep, or to compute from what it reads where it is one of `again`, each value that is needed."""
    total, seen, pending = 0, set[fx.Node](), list(wanted)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        keep, compute = costs(node)
        total += compute if node in again else keep
        pending.extend(node.all_input_nodes if node in again else ())
    return total


def _inputs(joint: Program) -> Iterator[tuple[Any, fx.Node]]:
    return zip(joint.signature.inputs, joint.placeholders, strict=True)


def _dependents(joint: Program, sources: set[fx.Node]) -> set[fx.Node]:
    found = set(sources)
    for node in joint.module.graph.nodes:
        if any(argument in found for argument in node.all_input_nodes):
            found.add(node)
    return found


def _reaches(joint: Program, given: set[fx.Node]) -> bool:
    """Whether all gradients follow from `given` without any input of the call."""
    known = set(given)
    for node in joint.module.graph.nodes:
        if node.op != "placeholder" and all(argument in known for argument in node.all_input_nodes):
            known.add(node)
    wanted = zip(joint.signature.outputs, joint.returned, strict=True)
    return all(node in known for role, node in wanted if isinstance(role, Gradient) and isinstance(node, fx.Node))


def _subsets(nodes: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    return chain.from_iterable(combinations(nodes, size) for size in range(len(nodes) + 1))


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _bytes(node: fx.Node) -> int:
    value = node.meta["val"]
    return int(value.numel() * value.element_size())


def peak_bytes(forward: fx.GraphModule, backward: fx.GraphModule) -> int:
    """The most memory that values take when the graphs run call by call, each value freed behind its last reader.

    Inputs of forward are their caller's; what forward returns stays until backward has read it last, if backward takes
    it, and to the end if not. Views take none.
    """
    first = _most(forward, [0] * len(_inputs_of(forward)))
    returned = next(iter(reversed(forward.graph.nodes))).args[0]
    names = {node.name: node for node in returned if isinstance(node, fx.Node)}
    sizes = [_held(names[node.name]) if node.name in names else 0 for node in _inputs_of(backward)]
    return max(first, _most(backward, sizes))


def _inputs_of(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _held(node: fx.Node) -> int:
    """What keeping a value, or a view of one, keeps: nothing more of an input."""
    root = _memory_of(node)
    return 0 if root.op == "placeholder" else _bytes(root)


def _memory_of(node: fx.Node) -> fx.Node:
    while getattr(node.target, "is_view", False):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _most(module: fx.GraphModule, given: Sequence[int]) -> int:
    nodes = list(module.graph.nodes)
    size = dict(zip(_inputs_of(module), given, strict=True))
    readers = {node: {other for other in nodes for read in other.all_input_nodes if _memory_of(read) is node}
               for node in nodes}  # fmt: skip
    live = most = sum(given)
    done: set[fx.Node] = set()
    for node in nodes:
        if node.op == "call_function":
            size[node] = _bytes(node) if _is_tensor(node) and _memory_of(node) is node else 0
            live += size[node]
            most = max(most, live)
        done.add(node)
        for other in {_memory_of(read) for read in node.all_input_nodes}:
            if node.op != "output" and readers[other] <= done:
                live -= size.get(other, 0)
    return most
