"""Calls that eager makes again where their graph raises: eager has by then written what comes before the error.

    x.add_(1); return x[i]   ->   x is written back behind the graph, which raises for `i`

The graph has done nothing by then that anyone sees, if it writes no input in place and draws no random number. So eager
can make the whole call, writes and raises the error itself.

Source: suites/upstream_bugs/written_before_an_error.py
Cost: 0.1 us a call, of programs alone that write inputs and have a node that may raise.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from assay.compiler.codegen.call.source import Source
from assay.compiler.ir.graph.roles import Begins, Freed, Layout, Mutation, Program, Rebased
from assay.compiler.ir.loops.failures import FAILURES
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.tensors.value_checks import MAY_REFUSE

RAISED = "its graph raised an error where eager does not"
UNSEEN = (Begins, Freed, Layout, Rebased)
"""Effects that happen behind the graph, or ask for nothing."""
ERRORS = tuple(dict.fromkeys(error for error, _ in FAILURES.values()))


def is_made_again(program: Program) -> bool:
    """Whether eager makes a call again where its graph raises."""
    signature, nodes = program.signature, program.module.graph.nodes
    is_written = any(isinstance(role, Mutation) for role in signature.outputs)
    is_unseen = all(isinstance(effect, UNSEEN) for effect in signature.effects)
    return is_written and is_unseen and any(map(_may_raise, nodes)) and all(map(_leaves_no_trace, nodes))


def emit_made_again(source: Source, run: Source) -> None:
    """The lines that run a graph, with what becomes of their errors."""
    errors = ", ".join(error.__name__ for error in ERRORS)
    source.line(1, "try:")
    source.lines.extend("    " + line for line in run.lines)
    source.line(1, f"except ({errors}): return again(given, {RAISED!r})")


def _may_raise(node: fx.Node) -> bool:
    is_check = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns
    return MAY_REFUSE in node.meta or is_check


def _leaves_no_trace(node: fx.Node) -> bool:
    """Whether a call changes nothing but its result: it is one of ATen's that draws nothing, or arithmetic of sizes."""
    target = node.target
    if node.op != "call_function" or target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(node.meta.get("val"), (*SYMBOLIC, int, float))
    is_drawn = torch.Tag.nondeterministic_seeded in target.tags
    return target.namespace == "aten" and not target._schema.is_mutable and not is_drawn
