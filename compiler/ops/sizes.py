"""The border between ShapeEnv's sympy expressions and the index algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from compiler.ir.index import Index, Int, Symbol, floordiv, maximum, minimum, mod, product, total
from compiler.ops.registry import Declined


def index_of(size: int | torch.SymInt) -> Index:
    """A size as an index. Raises: Declined for an expression that the index algebra has no form for."""
    if isinstance(size, int):
        return Int(size)
    return _from_sympy(size.node.expr)


def shape_of(sizes: tuple[int | torch.SymInt, ...]) -> tuple[Index, ...]:
    return tuple(index_of(size) for size in sizes)


def hints_of(size: int | torch.SymInt) -> dict[str, int]:
    """The sizes that the symbols of a size had at trace time, as far as they are known."""
    if isinstance(size, int):
        return {}
    environment = size.node.shape_env
    known = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
    return {str(s): int(known[s]) for s in size.node.expr.free_symbols if s in known}


def _from_sympy(expr: Any) -> Index:
    if isinstance(expr, sympy.Integer):
        return Int(int(expr))
    if isinstance(expr, sympy.Symbol):
        return Symbol(expr.name)
    if isinstance(expr, sympy.Pow):
        return _power(expr)
    build = _BUILD.get(type(expr).__name__)
    if build is None:
        raise Declined(f"size {expr}")
    return build([_from_sympy(argument) for argument in expr.args])


def _power(expr: Any) -> Index:
    base, exponent = expr.args
    if not isinstance(exponent, sympy.Integer) or not 0 <= int(exponent) <= 8:
        raise Declined(f"size {expr}")
    return product((_from_sympy(base),) * int(exponent))


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
