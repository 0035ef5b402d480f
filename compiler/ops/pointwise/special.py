"""Further functions of one or two numbers: by formulas, or by functions of the math that kernels inline."""

from __future__ import annotations

import math

import torch

from assay.compiler.ir.loops.kernel import Expr
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.pointwise.pointwise import Formula, arithmetic, compute_dtype, finish, formula, needs_floats
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, record, rule

for _name in ("lgamma", "digamma", "erfinv", "i0"):
    record(Kind.pointwise, arithmetic(_name, "self"), _name)
for _name in ("erfcx", "ndtri", "i0e", "i1", "i1e"):
    record(Kind.pointwise, arithmetic(_name, "self"), f"special_{_name}")
for _name in ("i0", "i1"):
    record(Kind.pointwise, arithmetic(_name, "self"), f"special_modified_bessel_{_name}")
del _name

# ---- of one number ---------------------------------------------------------------------------------------------------


@formula("self", targets=("sinc",))
def sinc(operation: Operation, x: Formula) -> Formula:
    angle = x * math.pi
    return x.is_equal(0.0).where(1.0, angle.of("sin") / angle)


@formula("x", targets=("special_spherical_bessel_j0",))
def spherical_bessel_j0(operation: Operation, x: Formula) -> Formula:
    return x.of("isinf").where(0.0, x.is_equal(0.0).where(1.0, x.of("sin") / x))


@formula("self", targets=("deg2rad",))
def deg2rad(operation: Operation, x: Formula) -> Formula:
    return x * (math.pi / 180)


@formula("self", targets=("rad2deg",))
def rad2deg(operation: Operation, x: Formula) -> Formula:
    return x * (180 / math.pi)


@formula("self", targets=("angle",))
def angle(operation: Operation, x: Formula) -> Formula:
    """Of a real number: pi left of zero, NaN for NaN."""
    return (x < 0.0).where(math.pi, x.of("isnan").where(x, 0.0))


@formula("self", targets=("special_entr",))
def entr(operation: Operation, x: Formula) -> Formula:
    """`-x log(x)`: 0 at 0, -inf left of it."""
    inside = (x > 0.0).where(-x * x.of("log"), (x.is_equal(0.0)).where(0.0, Formula(constant(-math.inf, x.expr.dtype))))
    return x.of("isnan").where(x, inside)


@formula("self", targets=("special_log_ndtr",))
def log_ndtr(operation: Operation, x: Formula) -> Formula:
    """The logarithm of the normal distribution; left of -1 by its tail, which `e^(x^2/2)` is taken out of."""
    t = x * math.sqrt(0.5)
    tail = ((-t).of("erfcx") * 0.5).of("log") - t * t
    return (x < -1.0).where(tail, (t.of("erfc") * -0.5).of("log1p"))


@rule(Kind.pointwise, "polygamma")
def polygamma(operation: Operation) -> Result:
    """`(-1)^(n+1) n! zeta(n + 1, x)`."""
    needs_floats(operation)
    order, x = int(operation.number("n")), operation.value("self", compute_dtype(operation))
    if order < 2:
        return finish(operation, call("trigamma" if order else "digamma", x))
    factor = constant((-1) ** (order + 1) * float(math.factorial(order)), x.dtype)
    return finish(operation, call("mul", factor, call("zeta", constant(order + 1, x.dtype), x)))


@formula("self", targets=("mvlgamma",))
def mvlgamma(operation: Operation, x: Formula) -> Formula:
    """`sum over j < p of ln Gamma(x - j/2)` and a constant."""
    count = int(operation.number("p"))
    total = x.of("lgamma")
    for j in range(1, count):
        total = total + (x - 0.5 * j).of("lgamma")
    return total + count * (count - 1) / 4 * math.log(math.pi)


def infinite(sign: float) -> None:
    """Records the test for one of the infinities, false for integers."""

    def lower(operation: Operation) -> Result:
        dtype = operation.tensor("self").dtype
        if not dtype.is_floating_point:
            return (constant(False, torch.bool),)
        x = operation.value("self", widened(dtype))
        return (call("eq", x, constant(sign * math.inf, x.dtype)),)

    record(Kind.pointwise, lower, "isposinf" if sign > 0 else "isneginf")


infinite(1)
infinite(-1)


@rule(Kind.pointwise, "round.decimals")
def round_decimals(operation: Operation) -> Result:
    """Scaled by a power of ten that is a number of the tensor's dtype, rounded, scaled back."""
    needs_floats(operation)
    decimals, x = int(operation.number("decimals")), Formula(operation.value("self", compute_dtype(operation)))
    if decimals == 0:
        return finish(operation, x.of("round").expr)
    scale = 10.0 ** abs(decimals)
    rounded = (x * scale).of("round") / scale if decimals > 0 else (x / scale).of("round") * scale
    return finish(operation, rounded.expr)


# ---- of two numbers --------------------------------------------------------------------------------------------------

record(Kind.pointwise, arithmetic("hypot", "self", "other"), "hypot")


@rule(Kind.pointwise, "nextafter")
def nextafter(operation: Operation) -> Result:
    if widened(operation.output.dtype) is not operation.output.dtype:
        raise Declined("steps of a narrow dtype")
    return arithmetic("nextafter", "self", "other")(operation)


record(
    Kind.pointwise,
    arithmetic("zeta", "self", "other"),
    *("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar"),
)


@rule(Kind.pointwise, "heaviside")
def heaviside(operation: Operation) -> Result:
    """0 left of zero, 1 right of it, `values` at it; NaN is neither."""
    dtype = compute_dtype(operation)
    if dtype is torch.bool:
        raise Declined("step of booleans")
    x, zero = operation.value("self", dtype), constant(0, dtype)
    step = call("where", call("gt", x, zero), constant(1, dtype), zero, dtype=dtype)
    return finish(operation, call("where", call("eq", x, zero), operation.value("values", dtype), step, dtype=dtype))


def _log_of_sum(a: Formula, b: Formula, exponential: str, scale: float) -> Formula:
    """`max(a, b) + log(1 + base^-|a - b|)`; the larger itself where both are the same infinity."""
    peak = a.maximum(b)
    summed = peak + (-(a - b).of("abs")).of(exponential).of("log1p") * scale
    return (a.of("isinf") & a.is_equal(b)).where(a, summed)


@formula("self", "other", targets=("logaddexp",))
def logaddexp(operation: Operation, a: Formula, b: Formula) -> Formula:
    return _log_of_sum(a, b, "exp", 1.0)


@formula("self", "other", targets=("logaddexp2",))
def logaddexp2(operation: Operation, a: Formula, b: Formula) -> Formula:
    return _log_of_sum(a, b, "exp2", 1 / math.log(2))


def _times_log(x: Formula, y: Formula, logarithm: str) -> Formula:
    """`x * log(y)`, 0 where x is 0 and y no NaN."""
    return y.of("isnan").where(math.nan, x.is_equal(0.0).where(0.0, x * y.of(logarithm)))


@formula("self", "other", targets=("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"), rounds_numbers=True)
def xlogy(operation: Operation, x: Formula, y: Formula) -> Formula:
    return _times_log(x, y, "log")


@formula(
    "self",
    "other",
    targets=("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar"),
    rounds_numbers=True,
)
def xlog1py(operation: Operation, x: Formula, y: Formula) -> Formula:
    return _times_log(x, y, "log1p")


@formula("self", "other", targets=("ldexp.Tensor",))
def ldexp(operation: Operation, x: Formula, exponent: Formula) -> Formula:
    """Raises: Declined for floats and integers, where eager scales by the lowest 32 bits of the exponent, and neither
    the power alone is rounded nor infinite."""
    if operation.tensor("self").dtype.is_floating_point and not operation.tensor("other").dtype.is_floating_point:
        raise Declined("an exponent that is an integer")
    return x * exponent.of("exp2")


# ---- bits ------------------------------------------------------------------------------------------------------------

for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    record(Kind.pointwise, arithmetic(_name, "self", "other"), f"{_name}.Scalar_Tensor")
del _name


def shift(op: str) -> None:
    """Records the shift by a tensor: one by less than 0 or more than the width is by the whole width."""

    def lower(operation: Operation) -> Result:
        dtype = operation.output.dtype
        if dtype.is_floating_point or dtype is torch.bool:
            raise Declined("shift")
        values: list[Expr] = [convert(operation.value(name, dtype), dtype) for name in ("self", "other")]
        return (call(op, *values),)

    way = "left" if op == "shl" else "right"
    record(Kind.pointwise, lower, f"bitwise_{way}_shift.Tensor", f"bitwise_{way}_shift.Scalar_Tensor")
    record(Kind.pointwise, lower, f"__{'l' if way == 'left' else 'r'}shift__.Tensor")


shift("shl")
shift("shr")
