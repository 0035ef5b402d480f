"""The border between ShapeEnv's sympy expressions and the index algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from assay.compiler.ir.loops.index import Index, Int, Symbol, floordiv, maximum, minimum, mod, product, total
from assay.compiler.ir.loops.kernel import Part
from assay.compiler.ir.tensors.layout.strides import hint, is_known
from assay.compiler.ops.registry import Declined
from assay.compiler.torch_compat import backed_sizes

WHOLE = (Part.whole,)
NEGATIVE = (Part.complement,)
EITHER = (Part.above, Part.below)


def index_of(size: int | torch.SymInt) -> Index:
    """A size as an index. Raises: Declined for an expression that the index algebra has no form for.

    An expression that the guards hold at 0 or 1 is that number: rules ask an index which of them it is.
    """
    if isinstance(size, int):
        return Int(size)
    if size.node.expr.args and is_known(size) and hint(size) in (0, 1) and statically_known_true(size == hint(size)):
        return Int(hint(size))
    environment = size.node.shape_env
    return _from_sympy(size.node.expr, lambda symbol: _number(symbol, environment))


def _number(symbol: sympy.Symbol, environment: Any) -> Index:
    """An integer behind a symbol of ShapeEnv's. It may have any sign, while symbols of the index algebra have none."""
    parts = parts_of(symbol, environment)
    symbols = [Symbol(symbol_name(symbol, part)) for part in parts]
    if parts is NEGATIVE:
        return -1 - symbols[0]
    return symbols[0] if parts is WHOLE else symbols[0] - symbols[1]


def parts_of(symbol: sympy.Symbol, environment: Any) -> tuple[Part, ...]:
    """The symbols of the index algebra that an integer is made of, by what its guards say of its sign."""
    known = environment.bound_sympy(symbol)
    if known.lower >= 0:
        return WHOLE
    return NEGATIVE if known.upper < 0 else EITHER


def symbol_name(symbol: sympy.Symbol, part: Part) -> str:
    return str(symbol.name) if part is Part.whole else f"{symbol.name}_{part.name}"


def part_of(number: int, part: Part) -> int:
    """That part of a number which is known."""
    return {Part.whole: number, Part.complement: ~number, Part.above: max(number, 0), Part.below: max(-number, 0)}[part]


def shape_of(sizes: tuple[int | torch.SymInt, ...]) -> tuple[Index, ...]:
    return tuple(index_of(size) for size in sizes)


def hints_of(size: int | torch.SymInt) -> dict[str, int]:
    """The sizes that the symbols of a size had at trace time, as far as they are known."""
    if isinstance(size, int):
        return {}
    environment = size.node.shape_env
    known = backed_sizes(environment)
    found = [symbol for symbol in size.node.expr.free_symbols if symbol in known]
    return {
        symbol_name(symbol, part): part_of(int(known[symbol]), part)
        for symbol in found
        for part in parts_of(symbol, environment)
    }


Leaf = Callable[[sympy.Symbol], Index]


def _from_sympy(expr: Any, leaf: Leaf) -> Index:
    if isinstance(expr, sympy.Integer):
        return Int(int(expr))
    if isinstance(expr, sympy.Symbol):
        return leaf(expr)
    if isinstance(expr, sympy.Pow):
        return _power(expr, leaf)
    build = _BUILD.get(type(expr).__name__)
    if build is None:
        raise Declined(f"size {expr}")
    return build([_from_sympy(argument, leaf) for argument in expr.args])


def _power(expr: Any, leaf: Leaf) -> Index:
    base, exponent = expr.args
    if not isinstance(exponent, sympy.Integer) or not 0 <= int(exponent) <= 8:
        raise Declined(f"size {expr}")
    return product((_from_sympy(base, leaf),) * int(exponent))


def _fold(function: Callable[[Index, Index], Index]) -> Callable[[list[Index]], Index]:
    def fold(parts: list[Index]) -> Index:
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part)
        return result

    return fold


_BUILD: dict[str, Callable[[list[Index]], Index]] = {
    "Add": total,
    "Mul": lambda parts: product(tuple(parts)),
    "FloorDiv": lambda parts: floordiv(parts[0], parts[1]),
    "CleanDiv": lambda parts: floordiv(parts[0], parts[1]),
    "Mod": lambda parts: mod(parts[0], parts[1]),
    "PythonMod": lambda parts: mod(parts[0], parts[1]),
    "ModularIndexing": lambda parts: mod(floordiv(parts[0], parts[1]), parts[2]),
    "Max": _fold(maximum),
    "Min": _fold(minimum),
}
