"""`with_compiled_functions`: loops, branches and regions that are nodes of a functional graph, over compiled functions.

scan(combine_graph_0, (h,), (xs,), ())          all steps in one call where that can be, as in Dynamo's graphs
cond(p, true_graph_0, false_graph_0, (x,))      the branch that is taken, which is a piece
invoke_subgraph(region, "name", x)              the region, which is one piece for all its calls

A loop with an effect is torch's own, over pieces: so is one that stacks what it carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from assay.compiler.capture.inputs import held
from assay.compiler.entry.graph_as_call import in_eager
from assay.compiler.entry.pieces.control_flow import CONTROLLED, ControlFlow, is_controlled
from assay.compiler.entry.pieces.parts import is_submodule
from assay.compiler.entry.pieces.piece import Piece, PieceCompiler
from assay.compiler.ir.graph.held_functions import IS_COMPILED, IS_PURE, REGION, STACKED
from assay.compiler.ir.graph.roles import Program

TAKE_PIECES = frozenset([*CONTROLLED, STACKED, REGION])


@dataclass(frozen=True, slots=True, eq=False)
class ControlledCall:
    """What a graph calls in the place of an operator that takes functions."""

    operator: Any
    flow: ControlFlow

    @property
    def __name__(self) -> str:
        return f"compiled_{self.operator.__name__}"

    def __str__(self) -> str:
        return f"higher_order.{self.operator.__name__}"

    def __call__(self, *args: Any) -> Any:
        if self.operator is REGION:
            return self.flow.body(args[0])(*map(_without_history, args[2:]))
        run = CONTROLLED[self.operator] if is_controlled(self.operator, args) else None
        return self.operator(*args) if run is None else run(self.flow, *args)


def _without_history(value: Any) -> Any:
    """What a functional graph is given, as one value that autograd knows nothing of: one compile serves all calls."""
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def with_compiled_functions(program: Program, compile: PieceCompiler) -> Program:
    """The program with its loops and branches compiled, each for what it is given when it is first called."""
    gm = program.module
    calls = [node for node in gm.graph.nodes if node.op == "call_function" and node.target in TAKE_PIECES]
    functions = {read for call in calls for read in call.all_input_nodes if is_submodule(gm, read)}
    if not functions:
        return program
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(gm.graph, copies))
    root = {str(node.target): held(gm, node) for node in gm.graph.find_nodes(op="get_attr")}
    flow = ControlFlow(gm, compile)
    for call in calls:
        is_taken = call.target is REGION or (call.target in CONTROLLED and IS_PURE in call.meta)
        if is_taken and not call.kwargs:
            copies[call].target = ControlledCall(call.target, flow)
            copies[call].meta[IS_COMPILED] = True
    for node in functions:
        function = root[str(node.target)]
        if isinstance(function, fx.GraphModule):
            _tell_values(function)
            if not all(isinstance(copies[user].target, ControlledCall) for user in node.users):
                root[str(node.target)] = Piece(function, compile, in_eager(function))
    return Program(fx.GraphModule(root, graph), program.signature)


def _tell_values(function: fx.GraphModule) -> None:
    """Notes what is known of a functional graph's values where Dynamo notes it of its own."""
    for node in function.graph.nodes:
        if "val" in node.meta:
            node.meta.setdefault("example_value", node.meta["val"])
