"""Operators, constants and casts as C++ text: one table for each class of operand type.

An entry is a format over the operands, each of which is a name or a literal. Float entries go through the overloads of
`math.h`, so one table serves float32 and float64; float16 and bfloat16 are stored as bits and compute in float32.

An integer divisor is neither 0 nor -1 where it is not a constant: the machine traps on 0 and on the least integer over
-1. The lowering chooses another divisor there, and checks for 0.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch

from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.kernel import Call, Const, Expr

C_TYPES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
"""The type of a value in a register. In memory a bool is a byte (`memory_type`)."""

COMPARISONS = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "logical_and": "({0} != 0) & ({1} != 0)",
    "logical_or": "({0} != 0) | ({1} != 0)",
    "logical_xor": "({0} != 0) ^ ({1} != 0)",
    "logical_not": "{0} == 0",
}

_FLOAT_UNARY = (
    "abs sign sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfcx erfinv gelu gelu_slope ndtri i0 i0e i1 i1e lgamma digamma trigamma sigmoid floor ceil trunc "
    "round signbit isinf isfinite"
).split()
_FLOAT_BINARY = {
    "maximum": "maximum",
    "minimum": "minimum",
    "fmax": "fmax",
    "fmin": "fmin",
    "pow": "pow",
    "atan2": "atan2",
    "copysign": "copysign",
    "hypot": "hypot",
    "zeta": "zeta",
    "nextafter": "nextafter",
    "fmod": "fmod",
    "floor_div_float": "floor_div",
    "remainder_float": "remainder",
}

FLOAT: dict[str, str] = {
    **COMPARISONS,
    **{op: f"m::{op}({{0}})" for op in _FLOAT_UNARY},
    **{op: f"m::{name}({{0}}, {{1}})" for op, name in _FLOAT_BINARY.items()},
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "reciprocal": "1 / {0}",
    "rsqrt": "1 / m::sqrt({0})",
    "fma": "m::fma({0}, {1}, {2})",
    "isnan": "{0} != {0}",
    "rounded": "m::rounded({0})",
}

INTEGER: dict[str, str] = {
    **COMPARISONS,
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "abs": "{0} < 0 ? -{0} : {0}",
    "sign": "m::sign({0})",
    "floordiv_int": "m::floordiv_int({0}, {1})",
    "mod_int": "m::mod_int({0}, {1})",
    "truncdiv_int": "{0} / {1}",
    "fmod": "{0} % {1}",
    "pow": "m::pow_int({0}, {1})",
    "maximum": "m::maximum({0}, {1})",
    "minimum": "m::minimum({0}, {1})",
    "fmax": "m::maximum({0}, {1})",
    "fmin": "m::minimum({0}, {1})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "shl": "m::shl({0}, {1})",
    "shr": "m::shr({0}, {1})",
    "philox": "m::philox({0}, {1}, {2}, {3}, {4})",
    "signbit": "{0} < 0",
    "floor": "{0}",
    "ceil": "{0}",
    "trunc": "{0}",
    "round": "{0}",
    "isnan": "false",
    "isinf": "false",
    "isfinite": "true",
}

BOOL: dict[str, str] = {
    **COMPARISONS,
    "add": "{0} | {1}",
    "mul": "{0} & {1}",
    "maximum": "{0} | {1}",
    "minimum": "{0} & {1}",
    "fmax": "{0} | {1}",
    "fmin": "{0} & {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "!{0}",
    "abs": "{0}",
    "sign": "{0}",
    "signbit": "false",
    "isnan": "false",
    "isinf": "false",
    "isfinite": "true",
}

INTEGER_DIVISIONS = ("floordiv_int", "mod_int", "truncdiv_int", "fmod")

POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "m::sqrt({0})", -1.0: "1 / {0}", -2.0: "1 / ({0} * {0})"}
"""Constant exponents that eager computes without pow."""


def table_of(dtype: torch.dtype) -> dict[str, str]:
    """The table for operands of `dtype`."""
    if dtype == torch.bool:
        return BOOL
    return FLOAT if dtype.is_floating_point else INTEGER


def memory_type(dtype: torch.dtype) -> str:
    """The C type of an element in memory: a bool is a byte, which need not be 0 or 1."""
    return "u8" if dtype == torch.bool else C_TYPES[dtype]


def is_supported(op: str, dtype: torch.dtype) -> bool:
    """Whether `op` on operands of `dtype` has text (integer division: not by the constant 0)."""
    return dtype in C_TYPES and (op == "where" or op in table_of(dtype))


def constant(value: bool | int | float, dtype: torch.dtype) -> str:
    """The literal that has `value`, rounded to `dtype`."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype in HALVES:
        bits = int(torch.tensor(value, dtype=dtype).view(torch.int16).item()) & 0xFFFF
        return f"({C_TYPES[dtype]}){bits:#x}"
    if dtype.is_floating_point:
        return _float_constant(float(value), dtype)
    return _integer_constant(int(value), dtype)


def _float_constant(value: float, dtype: torch.dtype) -> str:
    suffix = "f" if dtype == torch.float32 else ""
    rounded = ctypes.c_float(value).value if suffix else value
    if math.isnan(rounded):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(rounded):
        return ("-" if rounded < 0 else "") + f"__builtin_inf{suffix}()"
    text = f"{rounded:.9g}" if suffix else repr(rounded)
    text = text if any(c in text for c in ".e") else text + ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def _integer_constant(value: int, dtype: torch.dtype) -> str:
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    text = f"{value}LL" if dtype == torch.int64 else str(value)
    text = "(-2147483647 - 1)" if text == "-2147483648" else text
    return f"({C_TYPES[dtype]}){text}" if value >= 0 else f"({C_TYPES[dtype]})({text})"


def cast(text: str, source: torch.dtype, target: torch.dtype, is_made: bool = False) -> str:
    """The value `text` of type `source` as `target`, as eager converts it.

    Of a value that `is_made` beside the conversion GCC knows too much: it makes one conversion of two, and converts
    constants that are chosen among itself, NaN to 0, as no processor does.
    """
    if source == target:
        return text
    if source in HALVES:
        return cast(f"m::from_{C_TYPES[source]}({text})", torch.float32, target, is_made)
    if target in HALVES:
        return f"m::to_{C_TYPES[target]}({cast(text, source, torch.float32, is_made)})"
    if target == torch.bool:
        return f"({text} != 0)"
    if source == torch.bool and target.is_floating_point:  # gcc vectorises no conversion of bool
        return f"({text} ? {constant(1, target)} : {constant(0, target)})"
    to_float, from_float = target.is_floating_point, source.is_floating_point
    wide = "i64" if target in (torch.uint8, torch.int64) else "i32"
    if from_float and not to_float and is_made:
        return f"({C_TYPES[target]})m::to_{wide}({text})"
    if to_float and not from_float and is_made:
        text = f"m::apart({text})"
    if target == torch.uint8 and from_float:
        return f"(u8)(i64)({text})"
    return f"({C_TYPES[target]})({text})"


def call(expr: Call, operands: Sequence[str]) -> str:
    """The text of one operator over the texts of its operands.

    Raises: Unexpected for an operator or operand type that has no entry, and for integer division by the constant 0.
    """
    if expr.op == "where":
        return f"{operands[0]} ? {operands[1]} : {operands[2]}"
    dtype = expr.args[0].dtype
    if dtype in HALVES:
        return _call_in_float(expr, operands)
    if expr.op not in table_of(dtype):
        raise Unexpected(f"assay: C++ has no operator {expr.op!r} on {dtype}; the lowering must leave it to ATen")
    return _special(expr, operands) or table_of(dtype)[expr.op].format(*operands)


def _call_in_float(expr: Call, operands: Sequence[str]) -> str:
    wide = [cast(text, arg.dtype, torch.float32) for text, arg in zip(operands, expr.args, strict=True)]
    text = table_of(torch.float32).get(expr.op)
    if text is None:
        raise Unexpected(f"assay: C++ has no operator {expr.op!r} on {expr.args[0].dtype}")
    inner = torch.float32 if expr.dtype in HALVES else expr.dtype
    return cast(text.format(*wide), inner, expr.dtype)


def _special(expr: Call, operands: Sequence[str]) -> str | None:
    """Text for a constant second operand where it has its own: integer divisors and exponents."""
    if len(expr.args) != 2:
        return None
    dtype, second = expr.args[0].dtype, expr.args[1]
    if expr.op in INTEGER_DIVISIONS and not dtype.is_floating_point:
        return _integer_division(expr.op, operands, second)
    if expr.op == "pow" and dtype.is_floating_point and isinstance(second, Const) and second.value in POWERS:
        return POWERS[float(second.value)].format(*operands)
    return None


def _integer_division(op: str, operands: Sequence[str], divisor: Expr) -> str | None:
    if not isinstance(divisor, Const):
        return None
    if divisor.value == 0:
        raise Unexpected(f"assay: {op} by the constant 0: eager raises, and so must the lowering")
    if divisor.value == -1:  # the machine traps on the least integer / -1
        return f"-{operands[0]}" if op in ("floordiv_int", "truncdiv_int") else "0"
    return None
