"""Which elements have the very bits that eager gives: what `numerics="exact"` generates; the rest is called.

    x * 2, where(m, x, 0), x > y, x[i]        exact: at most one operation rounds, and IEEE 754 says how
    exp(x), sum(x), x + 2 * y, maximum(x, y)  not: another approximation, another order, eager may fuse the product
                                              and the sum, and of two zeros either may be the larger

Two roundings are one too many: where eager's own kernel takes them in one step (`fma`), or in another order, shows in
no schema. Of halves, eager rounds what it computes before it truncates it, and rounds a number that it computes with
for some operators only. Its square root is MKL's, which is not always the nearest number. So the proof is by
expression, not by operator, and a record needs no statement of its own.

The bits of a NaN are not compared: which operand's they are is the machine's choice.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

from assay.compiler.ir.loops.kernel import Call, Cast, Const, Expr, Reduce, Scan
from assay.compiler.ir.loops.rewrite import NARROW, call, map_children, nodes
from assay.compiler.ops.registry import Declined, Result, Scatter, View

Output: TypeAlias = Expr | View | Scatter | None

ROUNDED = frozenset(("add", "sub", "mul", "div", "reciprocal"))
"""Operators on floating point that IEEE 754 rounds correctly."""
UNROUNDED = frozenset(
    "abs neg sign copysign where signbit isnan isinf isfinite rounded"
    " eq ne lt le gt ge logical_and logical_or logical_xor logical_not".split()
)
"""Operators on floating point whose result is a number that they need not round."""
SNAPPING = frozenset(("floor", "ceil", "trunc", "round", "fmod", "nextafter"))
"""Those to which it matters whether what they are given is rounded."""
EXTREMES = ("maximum", "minimum")
ORDERED = ("any", "all", "argmax", "argmin")
"""Reductions of floating point that have one result, in whatever order."""


TIED = frozenset(("aten.sort", "aten.topk"))
"""Operators that say nothing of which of equals comes first, so that eager's own algorithm decides."""

DIVIDED = frozenset(("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor"))
"""Operators that multiply by the reciprocal of a number, on a GPU."""


def exact(result: Result, target: str, is_complex: bool, device: str = "cpu") -> Result:
    """The elements of the outputs, so that fusing them with others changes no bit either. Of complex numbers, whose
    signs of zeros depend on how eager's vectors are filled, only those that nothing computes. `device` is the type of
    that on which they are.

    Raises: Declined for one that eager may compute otherwise.
    """
    if target in TIED:
        raise Declined("the order of equals")
    if target in DIVIDED and device != "cpu":
        result = tuple(_by_reciprocals(one) if isinstance(one, Expr) else one for one in result)
    return tuple(_exact(output, is_complex) for output in result)


def _by_reciprocals(expr: Expr) -> Expr:
    """The expression with products in the places of its quotients by numbers."""
    expr = map_children(expr, _by_reciprocals)
    if isinstance(expr, Call) and expr.op == "div" and isinstance(number := expr.args[1], Const):
        one, divisor = torch.ones((), dtype=number.dtype), torch.tensor(number.value, dtype=number.dtype)
        return call("mul", expr.args[0], Const((one / divisor).item(), number.dtype))
    return expr


def _exact(output: Output, is_complex: bool) -> Output:
    if output is None or isinstance(output, View):
        return output
    if isinstance(output, Scatter):
        if output.mode != "write" and output.update.dtype.is_floating_point:
            raise Declined("updates of floating point, whose order decides")
        _exact(output.initial, is_complex)
        _exact(output.update, is_complex)
        return output
    found = nodes(output)
    if is_complex and any(
        isinstance(expr, Call) and expr.dtype.is_floating_point and expr.op != "where" for expr in found
    ):
        raise Declined("complex numbers")
    if not all(map(is_exact, found)) or sum(map(is_rounded, found)) > 1 or not _has_halves_numbers(found):
        raise Declined("rounded otherwise than in eager")
    return _apart(output)


def _has_halves_numbers(found: list[Expr]) -> bool:
    """Whether every number beside halves is one of theirs."""
    halves = {expr.dtype for expr in found} & set(NARROW)
    numbers = [expr.value for expr in found if isinstance(expr, Const) and expr.dtype.is_floating_point]
    return all(_is_held(float(number), dtype) for dtype in halves for number in numbers)


def _is_held(number: float, dtype: torch.dtype) -> bool:
    return math.isnan(number) or torch.tensor(number, dtype=dtype).item() == number


def is_exact(expr: Expr) -> bool:
    """Whether an operator on exact operands has the bits that eager gives."""
    match expr:
        case Reduce(op, _, body) | Scan(op, _, _, body):
            return not body.dtype.is_floating_point or op in ORDERED
        case Call(op, args) if any(arg.dtype.is_floating_point for arg in args):
            if op in SNAPPING:
                return not any(map(is_rounded, nodes(*args)))
            return op in ROUNDED or op in UNROUNDED or (op in EXTREMES and _is_bound(args[0]))
    return True


def _is_bound(expr: Expr) -> bool:
    """Whether the first operand of an extreme is a number: `clamped` gives the other one where both are zeros."""
    return isinstance(expr, Const) or (isinstance(expr, Cast) and isinstance(expr.expr, Const))


def is_rounded(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op in ROUNDED and expr.dtype.is_floating_point


def _apart(expr: Expr) -> Expr:
    """The expression with its product kept out of sums that it is fused with: see `m::rounded`."""
    if isinstance(expr, Call) and expr.op == "mul" and expr.dtype.is_floating_point:
        return call("rounded", expr)
    return map_children(expr, _apart)
