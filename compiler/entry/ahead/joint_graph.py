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
from assay.compiler.ir.graph.roles import Gradient, InputRole, Program, Tangent


def paired(program: Program) -> fx.GraphModule:
    """A joint graph that is called with two lists, `(primals, tangents)`, and returns `(results, gradients)`.

    Each primal has a gradient, or None.
    """
    signature = program.signature
    primals = [role for role in signature.inputs if not isinstance(role, Tangent)]
    count = len(signature.inputs) - len(primals)
    value = dict(zip(signature.outputs, program.returned, strict=True))
    results = [node for role, node in value.items() if not isinstance(role, Gradient)]
    found: dict[InputRole, torch.fx.Node | int | None] = {
        role.of: node for role, node in value.items() if isinstance(role, Gradient)
    }
    gradients = [found.get(role) for role in primals]
    set_returned(program.module, [*results, *gradients])
    output = next(iter(reversed(program.module.graph.nodes)))
    output.args = (list(output.args[0]),)  # as torch has it, where the structure is put around
    in_spec = pytree.tree_structure(([0] * len(primals), [0] * count))
    out_spec = pytree.tree_structure(((0,) * len(results), (0,) * len(gradients)))
    program.module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["primals", "tangents"], in_spec, out_spec)))
    program.module.recompile()
    return program.module


def numbered(kind: str, count: int) -> tuple[str, ...]:
    """`primals_1`, `primals_2`, and so on."""
    return tuple(f"{kind}_{index + 1}" for index in range(count))


def name_placeholders(program: Program, names: Iterable[str]) -> None:
    for node, name in zip(program.placeholders, names, strict=True):
        if node.name != name:
            node._rename(name)
        node.target = node.name
    program.module.recompile()
