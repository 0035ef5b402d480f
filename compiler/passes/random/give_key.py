"""The random numbers of a graph as its last input, where one call reserves them all.

    k = reserve_numbers(calls, device)    ->    input k, which the caller reserves before the call

A graph that takes its numbers launches nothing that depends on the host, so a CUDA graph can be recorded of it. One
whose other operators draw too stays as it is: they take their numbers in the order of the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from assay.compiler.ir.graph.roles import Program, Seed
from assay.compiler.ir.graph.trace import is_random, module_of
from assay.compiler.ops.calls.drawn_numbers import reserve_numbers


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserves the numbers of one call: of each of `calls` so many, on a device."""

    calls: tuple[int, ...]
    device: torch.device

    def __call__(self) -> Tensor:
        return reserve_numbers(list(self.calls), self.device)


def give_key(program: Program) -> tuple[Program, Reserve | None]:
    """The program, in a graph of its own if it takes numbers now, and what reserves them; None where it takes none."""
    draws = [node for node in program.module.graph.nodes if node.op == "call_function" and is_random(node)]
    if len(draws) != 1 or draws[0].target is not reserve_numbers:
        return program, None
    calls, device = draws[0].args
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in program.placeholders:
        copies[node] = graph.node_copy(node)
    copies[draws[0]] = given = graph.placeholder(draws[0].name)
    given.meta.update(draws[0].meta)
    graph.output(graph.graph_copy(program.module.graph, copies))
    signature = replace(program.signature, inputs=(*program.signature.inputs, Seed()))
    return Program(module_of(program.module, graph), signature), Reserve(tuple(calls), device)
