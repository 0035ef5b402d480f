"""A joint graph in the form that partition functions and exports know.

graph((primals_1, primals_2), (tangents_1,))  ->  ((results...), (gradient of primals_1, None))
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.utils import _pytree as pytree

from assay.compiler.ir.graph.materialize import set_returned
from assay.compiler.ir.graph.roles import Gradient, InputRole, OutputRole, Program, Tangent, Token
from assay.compiler.ir.graph.trace import module_of


def paired(program: Program) -> fx.GraphModule:
    """A joint graph that is called with two lists, `(primals, tangents)`, and returns `(results, gradients)`.

    Each primal has a gradient, or None. Tokens of forward come first among the primals and the results, those of
    backward last among the tangents and the gradients.
    """
    signature = program.signature
    primals = [role for role in signature.inputs if not is_of_backward(role)]
    count = len(signature.inputs) - len(primals)
    value = dict(zip(signature.outputs, program.returned, strict=True))
    results = [node for role, node in value.items() if not is_of_backward(role)]
    found: dict[InputRole, torch.fx.Node | int | None] = {
        role.of: node for role, node in value.items() if isinstance(role, Gradient)
    }
    gradients = [found.get(role) for role in primals if not isinstance(role, Token)]
    gradients += [node for role, node in value.items() if isinstance(role, Token) and role.in_backward]
    set_returned(program.module, [*results, *gradients])
    output = next(iter(reversed(program.module.graph.nodes)))
    output.args = (list(output.args[0]),)  # as torch has it, where the structure is put around
    in_spec = pytree.tree_structure(([0] * len(primals), [0] * count))
    out_spec = pytree.tree_structure(((0,) * len(results), (0,) * len(gradients)))
    program.module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["primals", "tangents"], in_spec, out_spec)))
    program.module.recompile()
    return program.module


def is_of_backward(role: InputRole | OutputRole) -> bool:
    """Whether an input or an output of a joint graph belongs to its backward."""
    return isinstance(role, Tangent | Gradient) or (isinstance(role, Token) and role.in_backward)


def numbered_as_joint(program: Program) -> Program:
    """The joint graph with its inputs numbered. A token of backward keeps its own name."""
    counts, graph = dict.fromkeys(("primals", "tangents"), 0), fx.Graph()
    copies = dict[fx.Node, fx.Node]()
    for role, node in zip(program.signature.inputs, program.placeholders, strict=True):
        kind = "tangents" if is_of_backward(role) else "primals"
        counts[kind] += 1
        is_named = kind == "tangents" and isinstance(role, Token)
        copies[node] = graph.placeholder(node.name if is_named else f"{kind}_{counts[kind]}")
        copies[node].meta = {**node.meta}
    for node in program.module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return Program(module_of(program.module, graph), program.signature)


def numbered(kind: str, count: int) -> tuple[str, ...]:
    """`primals_1`, `primals_2`, and so on."""
    return tuple(f"{kind}_{index + 1}" for index in range(count))


def name_placeholders(program: Program, names: Iterable[str]) -> None:
    for node, name in zip(program.placeholders, names, strict=True):
        if node.name != name:
            node._rename(name)
        node.target = node.name
    program.module.recompile()
