"""For which Python numbers a program is right: integers within bounds, and zeros of the sign that they were taken for.

Python's integers have no end, while those of kernels and of ATen wrap. So their arithmetic has to stay within 64 bits.

    input_0 * 2 + 1, input_0 any Python integer        ->  input_0 from -2**60 to 2**60
    input_0 * x, input_0 guarded to be 0.0             ->  input_0 not -0.0
"""

from __future__ import annotations

from collections.abc import Iterator

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from assay.compiler.ir.graph.roles import Program

LIMITS = tuple(1 << bits for bits in (62, 60, 55, 47, 31, 20))
"""Bounds of an integer, the widest first. Sums with an index of a kernel stay within 64 bits for all of them."""
LARGEST_SIZE = 1 << 20
"""A size is at most so much where it is a factor beside a number."""
WORD = 1 << 63


def number_inputs(program: Program) -> tuple[int, ...]:
    """The positions of inputs that are symbolic integers of which others are computed, and no sizes of tensors.

    An integer that is only handed on has no limit: the end of `x[1:]` is the greatest that there is.
    """
    values = [node.meta.get("val") for node in program.placeholders]
    sizes = {expr for value in values if isinstance(value, torch.Tensor) for expr in _expressions_of(value)}
    found = {expr for node in program.module.graph.nodes for expr in _integers(node) if not expr.is_Symbol}
    used = {symbol for expr in found for symbol in expr.free_symbols}
    return tuple(
        position
        for position, value in enumerate(values)
        if isinstance(value, torch.SymInt) and value.node.expr not in sizes and value.node.expr.free_symbols & used
    )


def number_limit(program: Program, positions: tuple[int, ...]) -> int:
    """The widest limit of the integers at these positions for which no integer of the program leaves 64 bits."""
    values = [program.placeholders[position].meta["val"] for position in positions]
    numbers = {symbol for value in values for symbol in value.node.expr.free_symbols}
    computed = {expr for node in program.module.graph.nodes for expr in _integers(node) if expr.free_symbols & numbers}
    return next((limit for limit in LIMITS if all(_is_within(e, numbers, limit) for e in computed)), LIMITS[-1])


def zero_inputs(program: Program) -> tuple[int, ...]:
    """The positions of tensors that stand for a Python float that is guarded to be zero.

    A guard takes -0.0 for 0.0, and a symbol that is replaced by its number has no sign at zero.
    """
    values = (node.meta.get("val") for node in program.placeholders)
    return tuple(position for position, value in enumerate(values) if _stands_for_zero(value))


def _stands_for_zero(value: object) -> bool:
    number = value.item_memo if isinstance(value, FakeTensor) and value.dim() == 0 else None
    return isinstance(number, torch.SymFloat) and bool(number.node.expr.is_zero)


def _integers(node: Node) -> Iterator[sympy.Expr]:
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        yield value.node.expr
    elif isinstance(value, torch.Tensor):
        yield from _expressions_of(value)


def _expressions_of(tensor: torch.Tensor) -> Iterator[sympy.Expr]:
    if tensor.layout != torch.strided:
        return
    for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()):
        if isinstance(size, torch.SymInt):
            yield size.node.expr


def _is_within(expr: sympy.Expr, numbers: set[sympy.Symbol], limit: int) -> bool:
    """Whether an integer, and each that it is computed from, stays within 64 bits."""
    ranges = {
        symbol: ValueRanges(-limit, limit) if symbol in numbers else ValueRanges(0, LARGEST_SIZE)
        for symbol in expr.free_symbols
    }
    return all(_is_word(bound_sympy(part, ranges)) for part in sympy.preorder_traversal(expr) if part.is_integer)


def _is_word(found: ValueRanges[sympy.Expr]) -> bool:
    return bool(found.lower >= -WORD) and bool(found.upper < WORD)
