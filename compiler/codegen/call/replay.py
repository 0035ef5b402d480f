"""Calls that eager makes again where their graph raises: eager has by then written what comes before the error.

    x.add_(1); return x[i]   ->   x is written back behind the graph, which raises for `i`

The graph has done nothing by then that anyone sees, if it writes no input in place. What it drew is drawn again, from
the state that the generator had. So eager can make the whole call, writes and raises the error itself.

Source: suites/upstream_bugs/written_before_an_error.py
Cost: 0.1 us a call, of programs alone that write inputs and have a node that may raise; 5 us where they draw, too.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.utils import _pytree as pytree

from assay.compiler.codegen.call.source import Source
from assay.compiler.ir.graph.roles import Mutation, Program, Warned
from assay.compiler.ir.loops.failures import FAILURES
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.ir.tensors.value_checks import MAY_REFUSE
from assay.compiler.runtime.generators import exchange_generator_state, generator_state

RAISED = "its graph raised an error where eager does not"
CPU = torch.device("cpu")
ERRORS = tuple(dict.fromkeys(error for error, _ in FAILURES.values()))


def is_made_again(program: Program) -> bool:
    """Whether eager makes a call again where its graph raises."""
    signature, nodes = program.signature, program.module.graph.nodes
    is_written = any(isinstance(role, Mutation) for role in signature.outputs)
    is_said = any(isinstance(effect, Warned) for effect in signature.effects)  # other effects come behind the graph
    return is_written and not is_said and any(map(_may_raise, nodes)) and all(map(_leaves_no_trace, nodes))


def emit_made_again(source: Source, program: Program, run: Source) -> None:
    """The lines that run a graph, with what becomes of their errors."""
    errors = ", ".join(error.__name__ for error in ERRORS)
    is_drawing = any(map(_is_drawn, program.module.graph.nodes))
    if is_drawing:
        source.line(1, f"state = {source.bind('generator_state', generator_state)}({source.bind('cpu', CPU)})")
    source.line(1, "try:")
    source.lines.extend("    " + line for line in run.lines)
    source.line(1, f"except ({errors}):")
    if is_drawing:
        source.line(2, f"{source.bind('exchange_state', exchange_generator_state)}(state, cpu)")
    source.line(2, f"return again(given, {RAISED!r})")


def _may_raise(node: fx.Node) -> bool:
    is_check = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns
    return MAY_REFUSE in node.meta or is_check


def _leaves_no_trace(node: fx.Node) -> bool:
    """Whether a call changes nothing but its result, and the state of the generator of the CPU: it is one of ATen's, or
    arithmetic of sizes."""
    target = node.target
    if node.op != "call_function" or target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(node.meta.get("val"), (*SYMBOLIC, int, float))
    if _is_drawn(node) and not _is_of_the_cpu(node):
        return False
    return target.namespace == "aten" and not target._schema.is_mutable


def _is_drawn(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _is_of_the_cpu(node: fx.Node) -> bool:
    """Whether a call draws from the default generator of the CPU."""
    values = [value for value in pytree.tree_leaves(node.meta["val"]) if isinstance(value, torch.Tensor)]
    is_default = all(node.kwargs.get(name) is None for name in ("generator", "rng"))
    return is_default and all(value.device == CPU for value in values)
