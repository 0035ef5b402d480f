"""`offloaded`: a split in which what forward keeps of a GPU's memory waits for backward in the host's.

forward      a = ...; last reader of a; host = offload(a)     -> host is kept for backward
backward     ...; a = reload(host); first reader of a
"""

from __future__ import annotations

import torch
from torch import fx

from assay.compiler.autograd.partition import Split, viewed
from assay.compiler.autograd.rematerialization.recompute_cost import bytes_of, is_measurable
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.machine import number
from assay.compiler.ops.calls.transfers import offload, reload

AHEAD = 8
"""How many calls before its first reader a value is asked back."""


def offloaded(split: Split) -> Split:
    """The split, changed to have its larger kept values in pinned memory: those on a GPU whose memory is neither the
    caller's nor that of what the call returns."""
    pairs = list(zip(split.forward.signature.outputs, split.forward.returned, strict=True))
    returned = {viewed(node) for role, node in pairs if not isinstance(role, Saved) and isinstance(node, fx.Node)}
    chosen = {
        role.of: node
        for role, node in pairs
        if isinstance(role, Saved) and isinstance(node, fx.Node) and _is_large(node) and viewed(node) not in returned
    }
    if not chosen:
        return split
    hosts = {name: _send(node) for name, node in chosen.items()}
    output = next(iter(reversed(split.forward.module.graph.nodes)))
    output.args = ([hosts.get(role.of, node) if isinstance(role, Saved) else node for role, node in pairs],)
    _fetch(split.backward, hosts, {name: node.meta["val"] for name, node in chosen.items()})
    split.forward.module.recompile()
    split.backward.module.recompile()
    return split


def _is_large(node: fx.Node) -> bool:
    if not is_measurable(node) or node.op != "call_function" or viewed(node) is not node:
        return False
    value = node.meta["val"]
    return value.device.type == "cuda" and bytes_of(value) >= number("offloaded_bytes")


def _send(node: fx.Node) -> fx.Node:
    """The copy in the host's memory, made behind the last call of forward that reads the value or a view of it."""
    order = {each: place for place, each in enumerate(node.graph.nodes)}
    last, pending = node, [node]
    while pending:
        for user in pending.pop().users:
            if user.op == "call_function":
                last = max(last, user, key=order.__getitem__)
                pending += [user] if viewed(user) is node else []
    with node.graph.inserting_after(last):
        host = node.graph.call_function(offload, (node,))
    value = node.meta["val"]
    with value.fake_mode:
        host.meta["val"] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return host


def _fetch(backward: Program, hosts: dict[str, fx.Node], values: dict[str, torch.Tensor]) -> None:
    """Backward takes the copies, and asks each value back shortly before its first reader."""
    graph = backward.module.graph
    given = dict(zip(backward.signature.inputs, backward.placeholders, strict=True))
    calls = [node for node in graph.nodes if node.op != "placeholder"]
    places = {node: place for place, node in enumerate(calls)}
    for name, host in hosts.items():
        placeholder = given[Saved(name)]
        readers = list(placeholder.users)
        first = min((places[user] for user in readers), default=None)
        placeholder.meta = {**placeholder.meta, "val": host.meta["val"]}
        if first is None:
            continue
        with graph.inserting_before(calls[max(first - AHEAD, 0)]):
            value = graph.call_function(reload, (placeholder, values[name].device))
        value.meta["val"] = values[name]
        for reader in readers:
            reader.replace_input_with(placeholder, value)
