"""Results as the graph computes them, beside the recipes by which the call makes them.

    call returns  View(of=Base(mul), how=(view,))        graph returns  (mul)  ->  (mul, view)

Whoever is handed a graph finds in it what the program returns, each result in its place. So it is with torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.roles import Constant, Mutation, OutputRole, Restride, Shown, Size, UserOutput
from assay.compiler.ir.tensors.wrappers import is_wrapper


def showing(captured: Captured, results: Sequence[object], arguments: Sequence[object]) -> Captured:
    """The recorded call with all of its results among the graph's outputs, and the inputs whose strides it changes.

    As it is where a wrapper is taken or returned: the graph is of plain tensors.
    """
    if any(isinstance(value, torch.Tensor) and is_wrapper(value) for value in (*results, *arguments)):
        return captured
    returned = {**captured.returned, **dict(_shown(captured, results, arguments))}
    return replace(captured, returned=returned, signature=replace(captured.signature, outputs=tuple(returned)))


def _shown(
    captured: Captured, results: Sequence[object], arguments: Sequence[object]
) -> Iterator[tuple[OutputRole, torch.fx.Node]]:
    signature, trace = captured.signature, captured.trace
    written = {role.of for role in signature.outputs if isinstance(role, Mutation)}
    changed = {effect.of for effect in signature.effects if isinstance(effect, Restride)} - written
    for role in sorted(changed, key=lambda role: role.index):
        argument = arguments[role.index]
        assert isinstance(argument, torch.Tensor)
        yield Shown(role), trace.node_of(argument)
    for index, made in enumerate(signature.results):
        value = results[index]
        if not isinstance(made, (UserOutput, Size, Constant)) and isinstance(value, torch.Tensor):
            yield Shown(UserOutput(index)), trace.node_of(value)
