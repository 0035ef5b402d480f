"""Sizes that a graph reads off its inputs although it is given them as numbers, as Dynamo gives each size that changes.

n = sym_size(x, 0); expand(y, [n])    with n an input too    ->      expand(y, [the input])

Torch gives a graph the sizes and strides of each wrapper too, behind its inner tensors. The last of equal ones is read.
Backward is then given the number, and no size that forward has read. Law: the graph gives the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from assay.compiler.codegen.call.border import OF_WRAPPER, read_wrapper_sizes
from assay.compiler.ir.graph.roles import Program, Tangent

aten = torch.ops.aten
READS = (
    aten.sym_size.int,
    aten.sym_stride.int,
    aten.sym_storage_offset.default,
    aten.sym_numel.default,
)


def take_given_sizes(program: Program) -> None:
    """Has a graph take sizes from its inputs that are numbers, where it reads them off tensors."""
    given = {**_sizes_of_wrappers(program), **_numbers(program)}
    for node in program.module.graph.nodes if given else ():
        size = _expression(node) if node.target in READS and OF_WRAPPER not in node.meta else None
        if size in given:
            node.replace_all_uses_with(given[size])
            program.module.graph.erase_node(node)


def _numbers(program: Program) -> dict[Any, fx.Node]:
    """The inputs that are whole numbers, by their symbols."""
    found: dict[Any, fx.Node] = {}
    for role, node in zip(program.signature.inputs, program.placeholders, strict=True):
        if not isinstance(role, Tangent) and (symbol := _expression(node)) is not None and symbol.is_Symbol:
            found.setdefault(symbol, node)
    return found


def _sizes_of_wrappers(program: Program) -> dict[Any, fx.Node]:
    """The sizes and strides that the graph is given with wrappers, by their symbols: of equal ones the last."""
    numbers = read_wrapper_sizes(program)
    return {symbol: node for node in numbers if (symbol := _expression(node)) is not None and symbol.is_Symbol}


def _expression(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.node.expr if isinstance(value, torch.SymInt) else None
