"""`with_compiled_functions`: loops and branches that are nodes of a functional graph, over functions that are compiled.

cond(p, true_graph_0, false_graph_0, (x,))      torch takes the branch, which is a piece
"""

from __future__ import annotations

from torch import fx

from assay.compiler.capture.inputs import held
from assay.compiler.entry.graph_as_call import in_eager
from assay.compiler.entry.pieces.control_flow import CONTROLLED
from assay.compiler.entry.pieces.parts import is_submodule
from assay.compiler.entry.pieces.piece import Compile, Piece
from assay.compiler.ir.graph.held_functions import STACKED
from assay.compiler.ir.graph.roles import Program

TAKE_PIECES = frozenset([*CONTROLLED, STACKED])


def with_compiled_functions(program: Program, compile: Compile) -> Program:
    """The program with pieces for the functions of its loops and branches, each compiled when it is first called."""
    gm = program.module
    calls = [node for node in gm.graph.nodes if node.op == "call_function" and node.target in TAKE_PIECES]
    functions = {read for call in calls for read in call.all_input_nodes if is_submodule(gm, read)}
    if not functions:
        return program
    root = {str(node.target): held(gm, node) for node in gm.graph.find_nodes(op="get_attr")}
    for node in functions:
        function = root[str(node.target)]
        if isinstance(function, fx.GraphModule):
            _tell_values(function)
            root[str(node.target)] = Piece(function, compile, in_eager(function))
    return Program(fx.GraphModule(root, gm.graph), program.signature)


def _tell_values(function: fx.GraphModule) -> None:
    """Notes what is known of a functional graph's values where Dynamo notes it of its own."""
    for node in function.graph.nodes:
        if "val" in node.meta:
            node.meta.setdefault("example_value", node.meta["val"])
