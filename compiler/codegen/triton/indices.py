"""Indices as Triton text, whatever the names of their variables stand for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from assay.compiler.codegen.loops import affine
from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Max, Min, Mod, Product, Sum, Symbol

Variable = Callable[[str], str]
"""The text of a variable, as an operand."""
SHORT = (1 << 16) - 1
"""What is known to be no more would be divided in 16 bits, as a product by a reciprocal. NVIDIA's assembler (12.8, for
sm_90) makes a wrong condition of that: zeros were read for elements that are there."""


def text_of(index: Index, variable: Variable, extents: Mapping[str, Index]) -> str:
    match index:
        case Int(value):
            return str(value)
        case Symbol(name):
            return variable(name)
        case Sum(terms):
            return " + ".join(factor_of(term, variable, extents) for term in terms).replace("+ -", "- ")
        case Product(factors):
            return " * ".join(factor_of(factor, variable, extents) for factor in factors)
        case Min(a, b):
            return f"tl.minimum({text_of(a, variable, extents)}, {text_of(b, variable, extents)})"
        case Max(a, b):
            return f"tl.maximum({text_of(a, variable, extents)}, {text_of(b, variable, extents)})"
        case FloorDiv(a, b) | Mod(a, b):
            return _division(index, factor_of(a, variable, extents), factor_of(b, variable, extents), extents)
    raise AssertionError(index)


def may_outgrow(index: Index, numbers: Collection[str]) -> bool:
    """Whether a value may leave 32 bits though each number that the kernel is called with is within them: where one of
    these is in a sum or a product."""
    match index:
        case Sum(parts) | Product(parts):
            return any(affine.names(part) & set(numbers) or may_outgrow(part, numbers) for part in parts)
        case Min(a, b) | Max(a, b) | FloorDiv(a, b) | Mod(a, b):
            return may_outgrow(a, numbers) or may_outgrow(b, numbers)
    return False


def factor_of(index: Index, variable: Variable, extents: Mapping[str, Index]) -> str:
    """The text of an index as an operand."""
    text = text_of(index, variable, extents)
    return f"({text})" if isinstance(index, Sum | Product | FloorDiv | Mod) else text


def _division(index: FloorDiv | Mod, a: str, b: str, extents: Mapping[str, Index]) -> str:
    least, most = affine.interval(index.a, extents)
    if most <= SHORT and not (isinstance(index.b, Int) and index.b.value & (index.b.value - 1) == 0):
        a = f"m.hidden({a})"
    if least >= 0:
        return f"({a} {'//' if isinstance(index, FloorDiv) else '%'} {b})"
    return f"m.{'floordiv_int' if isinstance(index, FloorDiv) else 'mod_int'}({a}, {b})"
