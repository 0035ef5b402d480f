"""Division of integers, which fails for a divisor of 0 as eager's does and wraps for the least integer over -1.

Eager's own kernel traps in the second case, so what ours gives there is free to be what the other operators give.
"""

from __future__ import annotations

import torch

from assay.compiler.ir.loops.kernel import Call, Check, Const, Expr
from assay.compiler.ir.loops.rewrite import call, constant


def integer_division(op: str, a: Expr, b: Expr) -> Expr:
    """`op` (floordiv_int, truncdiv_int, mod_int or fmod) of two integers of one dtype."""
    if isinstance(b, Const) and b.value != 0:
        return call(op, a, b)
    dtype = b.dtype
    zero, one = constant(0, dtype), constant(1, dtype)
    is_safe = call("ne", b, zero)
    if dtype is torch.uint8:
        result: Expr = call(op, a, safe_divisor(is_safe, b, one))
    else:
        is_minus_one = call("eq", b, constant(-1, dtype))
        plain = call(op, a, safe_divisor(call("logical_and", is_safe, call("logical_not", is_minus_one)), b, one))
        by_minus_one = call("neg", a) if "div" in op else zero
        result = call("where", is_minus_one, by_minus_one, plain, dtype=dtype)
    return Check(result, is_safe, "zero division", dtype)


def safe_divisor(is_safe: Expr, b: Expr, one: Expr) -> Call:
    """`b`, or 1 where the machine would trap."""
    return call("where", is_safe, b, one, dtype=b.dtype)
