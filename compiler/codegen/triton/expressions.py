"""Operators, constants and casts as Triton text: one table for each class of operand type.

An entry is a format over the operands, each of which is a name. `d` is CUDA's device library, whose functions are those
that eager's own kernels call; `m` is `math.py`. Halves are computed in float32. Contraction is off, so a
product and a sum round apart, as in eager.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch

from assay.compiler.codegen.cpp.expressions import COMPARISONS
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.kernel import Call, Const

TYPES: dict[torch.dtype, str] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.bool: "tl.int1",
    torch.uint8: "tl.uint8",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
}
"""The type of a value in a register. In memory a bool is a byte (`memory_type`)."""

_LIBRARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfcx "
    "erfinv lgamma floor ceil trunc"
).split()
_OURS = "sign sqrt rsqrt reciprocal sigmoid gelu gelu_slope".split()
_LIBRARY_BINARY = "pow atan2 copysign hypot nextafter fmod".split()

FLOAT: dict[str, str] = {
    **COMPARISONS,
    **{op: f"d.{op}({{0}})" for op in _LIBRARY},
    **{op: f"m.{op}({{0}})" for op in _OURS},
    **{op: f"d.{op}({{0}}, {{1}})" for op in _LIBRARY_BINARY},
    "abs": "tl.abs({0})",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "m.divide({0}, {1})",
    "neg": "{0} * -1.0",  # Triton's own sign is 0 - x, and so 0 for 0
    "round": "d.rint({0})",
    "ndtri": "d.normcdfinv({0})",
    "i0": "d.cyl_bessel_i0({0})",
    "i1": "d.cyl_bessel_i1({0})",
    "signbit": "d.signbit({0}) != 0",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "isfinite": 'tl.abs({0}) < float("inf")',
    "fma": "tl.fma({0}, {1}, {2})",
    "rounded": "{0}",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
    "floor_div_float": "m.floor_div({0}, {1})",
    "remainder_float": "m.remainder({0}, {1})",
}

INTEGER: dict[str, str] = {
    **COMPARISONS,
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "sign": "m.sign_int({0})",
    "floordiv_int": "m.floordiv_int({0}, {1})",
    "mod_int": "m.mod_int({0}, {1})",
    "truncdiv_int": "{0} // {1}",
    "fmod": "{0} % {1}",
    "pow": "m.pow_int({0}, {1})",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "shl": "m.shl({0}, {1})",
    "shr": "m.shr({0}, {1})",
    "philox": "m.philox({0}, {1}, {2}, {3}, {4})",
    "signbit": "{0} < 0",
    **{op: "{0}" for op in ("floor", "ceil", "trunc", "round")},
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "isfinite": "{0} == {0}",
}

BOOL: dict[str, str] = {
    **COMPARISONS,
    **dict.fromkeys(("add", "maximum", "fmax", "bitwise_or"), "{0} | {1}"),
    **dict.fromkeys(("mul", "minimum", "fmin", "bitwise_and"), "{0} & {1}"),
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "{0} == 0",
    "abs": "{0}",
    "sign": "{0}",
    "signbit": "{0} != {0}",
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "isfinite": "{0} == {0}",
}

SHORTS = (torch.int8, torch.uint8, torch.int16)
DIVIDED = frozenset(("floordiv_int", "mod_int", "truncdiv_int", "fmod"))
"""What is computed in 32 bits of shorter integers: a division in 16 bits is a call, beside which NVIDIA's assembler may
make other conditions in 16 bits (`triton_build.is_assembled_right`)."""
POWERS = {
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    0.5: "m.sqrt({0})",
    -0.5: "m.rsqrt({0})",
    -1.0: "m.reciprocal({0})",
    -2.0: "m.reciprocal({0} * {0})",
}
"""Constant exponents that eager computes without pow."""


NARROW = {
    "div": "{0} / {1}",
    "reciprocal": "1.0 / {0}",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sqrt": "tl.sqrt({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))",
    "gelu": "m.gelu_of_halves({0})",
    "gelu_slope": "m.gelu_slope_of_halves({0})",
}
"""Float32 where only halves are stored: these err by less than 2^-17 of the value, a half's last place is 2^-11."""


def table_of(dtype: torch.dtype) -> dict[str, str]:
    """The table for operands of `dtype`."""
    if dtype == torch.bool:
        return BOOL
    return FLOAT if dtype.is_floating_point else INTEGER


def memory_type(dtype: torch.dtype) -> str:
    """The type of an element in memory, as signatures name it: a bool is a byte, which need not be 0 or 1."""
    if dtype is torch.bool:
        return "u8"
    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}
    return names.get(dtype) or TYPES[dtype].removeprefix("tl.").replace("uint", "u").replace("int", "i")


def is_supported(op: str, dtype: torch.dtype) -> bool:
    """Whether `op` on operands of `dtype` has text."""
    return dtype in TYPES and (op == "where" or op in table_of(torch.float32 if dtype in HALVES else dtype))


def constant(value: bool | int | float, dtype: torch.dtype) -> str:
    """A value of `dtype`, rounded to it, that broadcasts to any tile."""
    if not dtype.is_floating_point:
        return f"tl.full((), {_wrapped(int(value), dtype)}, {TYPES[dtype]})"
    if value == 0 and math.copysign(1, value) < 0:
        return _negative_zero(dtype)
    return f"tl.full((), {_float_text(float(value), dtype)}, {TYPES[dtype]})"


def _wrapped(value: int, dtype: torch.dtype) -> int:
    """The number of an integer's dtype that has its last bits, as C++ has it: Triton takes no other."""
    if dtype is torch.bool:
        return value
    least, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).bits
    return (value - least) % (1 << bits) + least


def _negative_zero(dtype: torch.dtype) -> str:
    """By its bits: Triton makes a zero that is written down one without a sign."""
    wide, whole = (torch.float64, torch.int64) if dtype is torch.float64 else (torch.float32, torch.int32)
    text = f"tl.full((), {torch.iinfo(whole).min}, {TYPES[whole]}).to({TYPES[wide]}, bitcast=True)"
    return text if dtype is wide else f"{text}.to({TYPES[dtype]})"


def _float_text(value: float, dtype: torch.dtype) -> str:
    rounded = ctypes.c_float(value).value if dtype is torch.float32 else value
    return repr(rounded) if math.isfinite(rounded) else f'float("{rounded}")'


ROUNDED = (torch.int32, torch.int64)
"""Integers of which float32 does not hold each."""


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """The value `text` of type `source` as `target`, as eager converts it."""
    if source == target:
        return text
    if target == torch.bool:
        return f"({text} != 0)"
    if target in HALVES and (source is torch.float64 or not source.is_floating_point):
        return f"{cast(text, source, torch.float32)}.to({TYPES[target]})"
    if target is torch.float32 and source in ROUNDED:
        return f"m.rounded({text})"
    if target == torch.uint8 and source.is_floating_point:
        return f"{text}.to(tl.int64).to(tl.uint8)"
    return f"{text}.to({TYPES[target]})"


def call(expr: Call, operands: Sequence[str], is_narrow: bool = False) -> str:
    """The text of one operator over the names of its operands; with `is_narrow` it may be as exact as halves are.

    Raises: Unexpected for an operator or operand type that has no entry.
    """
    if expr.op == "where":
        return f"tl.where({', '.join(operands)})"
    dtype = expr.args[0].dtype
    if not is_supported(expr.op, dtype):
        raise Unexpected(f"assay: Triton has no operator {expr.op!r} on {dtype}; the lowering must leave it to ATen")
    if dtype in HALVES:
        wide = [cast(text, arg.dtype, torch.float32) for text, arg in zip(operands, expr.args, strict=True)]
        inner = torch.float32 if expr.dtype in HALVES else expr.dtype
        return cast(f"({FLOAT[expr.op].format(*wide)})", inner, expr.dtype)
    if dtype in SHORTS and expr.op in DIVIDED:
        wide = [cast(text, arg.dtype, torch.int32) for text, arg in zip(operands, expr.args, strict=True)]
        return cast(f"({INTEGER[expr.op].format(*wide)})", torch.int32, expr.dtype)
    if is_narrow and dtype is torch.float32 and expr.op in NARROW:
        return NARROW[expr.op].format(*operands)
    second = expr.args[1] if len(expr.args) == 2 else None
    if expr.op == "pow" and dtype.is_floating_point and isinstance(second, Const) and second.value in POWERS:
        return POWERS[float(second.value)].format(*operands)
    return table_of(dtype)[expr.op].format(*operands)
