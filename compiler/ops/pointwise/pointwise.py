"""Pointwise operators: `out[d] = f(a[d], b[d], ...)`, mostly one row of a table each."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, cast

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from assay.compiler.ir.loops.index import Index, Symbol
from assay.compiler.ir.loops.kernel import Expr
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.pointwise.division import integer_division
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, broadcast, element, record, rule

ON_BOOL = {
    "add": "logical_or",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
"""What arithmetic on booleans means."""


def compute_dtype(operation: Operation) -> torch.dtype:
    """The dtype that eager computes this result in."""
    return widened(operation.output.dtype)


def common_dtype(operation: Operation) -> torch.dtype:
    """The dtype that eager brings the operands of a comparison into."""
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return elementwise_dtypes(*operation.fakes[:2], type_promotion_kind=kind)[1]


def finish(operation: Operation, expr: Expr) -> Result:
    """The result, rounded to the dtype of the output."""
    return (convert(expr, operation.output.dtype),)


def primitive(op: str, *args: Expr) -> Expr:
    """`op(args)`, for booleans what eager means by it."""
    if args[0].dtype is torch.bool:
        if op not in ON_BOOL:
            raise Declined(f"{op} of booleans")
        op = ON_BOOL[op]
    return call(op, *args)


def arithmetic(op: str, *names: str) -> Callable[[Operation], Result]:
    """A rule: `op` of the named arguments in the dtype of the result."""

    def lower(operation: Operation) -> Result:
        dtype = compute_dtype(operation)
        return finish(operation, primitive(op, *(operation.taken(name, dtype) for name in names)))

    return lower


def extreme(op: str) -> Callable[[Operation], Result]:
    """A rule: the greater or lesser of self and other. A kernel gives the second of two equal zeros. Eager gives the
    first, but for `fmax` and `fmin` of bfloat16, and in full vectors for `maximum` and `minimum`."""
    second, first = arithmetic(op, "self", "other"), arithmetic(op, "other", "self")

    def lower(operation: Operation) -> Result:
        gives_second = op in ("fmax", "fmin") and operation.output.dtype is torch.bfloat16
        return second(operation) if gives_second else first(operation)

    return lower


def comparison(op: str) -> Callable[[Operation], Result]:
    """A rule: `op` of self and other in their common dtype."""

    def lower(operation: Operation) -> Result:
        common = common_dtype(operation)
        dtype = widened(common)
        operands = (operation.taken(name, dtype, common) for name in ("self", "other"))
        return finish(operation, call(op, *operands))

    return lower


def logical(op: str, *names: str) -> Callable[[Operation], Result]:
    """A rule: `op` of the truth of the named arguments."""

    def lower(operation: Operation) -> Result:
        values = (operation.value(name, torch.bool) for name in names)
        return finish(operation, call(op, *values))

    return lower


@rule(Kind.pointwise, "sqrt")
def sqrt(operation: Operation) -> Result:
    return finish(operation, square_root(operation.taken("self", compute_dtype(operation)), operation.output))


def square_root(value: Expr, output: Tensor) -> Expr:
    """The root, of a negative number a NaN without a sign, as eager's libraries give it for float32 and float64.

    For halves, and for float64 on a GPU, eager has the processor's root, whose NaN has a sign.
    """
    root, dtype = call("sqrt", value), output.dtype
    if value.dtype is not dtype or (dtype is torch.float64 and output.device.type != "cpu"):
        return root
    is_negative = call("lt", value, constant(0, dtype))
    return call("where", is_negative, constant(math.nan, dtype), root, dtype=dtype)


FLOAT_UNARY = (
    "rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc sigmoid"
)
for _name in FLOAT_UNARY.split():
    record(Kind.pointwise, arithmetic(_name, "self"), _name)
for _name in ("neg", "abs", "bitwise_not"):
    record(Kind.pointwise, arithmetic(_name, "self"), _name)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    record(Kind.pointwise, arithmetic(_name, "self", "other"), f"{_name}.Tensor", f"{_name}.Scalar")
record(Kind.pointwise, arithmetic("atan2", "self", "other"), "atan2")
for _name in ("maximum", "minimum", "fmax", "fmin"):
    record(Kind.pointwise, extreme(_name), _name)
record(Kind.pointwise, arithmetic("copysign", "self", "other"), "copysign.Tensor", "copysign.Scalar")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    record(Kind.pointwise, comparison(_name), f"{_name}.Tensor", f"{_name}.Scalar")
for _name in ("logical_and", "logical_or", "logical_xor"):
    record(Kind.pointwise, logical(_name, "self", "other"), _name)
record(Kind.pointwise, logical("logical_not", "self"), "logical_not")
del _name


@rule(Kind.pointwise, "fmod.Tensor", "fmod.Scalar")
def fmod(operation: Operation) -> Result:
    return divided(operation, "fmod", "fmod")


def needs_floats(operation: Operation) -> None:
    """Raises: Declined for a result that is not floating point."""
    if not operation.output.dtype.is_floating_point:
        raise Declined("integer operands")


def keeps_integers(op: str) -> Callable[[Operation], Result]:
    """A rule: `op` of self for floating point, self for integers."""

    def lower(operation: Operation) -> Result:
        value = operation.value("self", compute_dtype(operation))
        return finish(operation, call(op, value) if value.dtype.is_floating_point else value)

    return lower


for _name in ("floor", "ceil", "trunc", "round"):
    record(Kind.pointwise, keeps_integers(_name), _name)
del _name


@rule(Kind.pointwise, "sign", "sgn")
def sign(operation: Operation) -> Result:
    value = operation.value("self", compute_dtype(operation))
    return finish(operation, value if value.dtype is torch.bool else call("sign", value))


def floating_test(op: str, otherwise: bool) -> Callable[[Operation], Result]:
    """A rule: a test of floating point values, constant for integers."""

    def lower(operation: Operation) -> Result:
        dtype = operation.tensor("self").dtype
        if not dtype.is_floating_point:
            return (constant(otherwise, torch.bool),)
        return (call(op, operation.value("self", widened(dtype))),)

    return lower


record(Kind.pointwise, floating_test("isnan", False), "isnan")
record(Kind.pointwise, floating_test("isinf", False), "isinf")
record(Kind.pointwise, floating_test("isfinite", True), "isfinite")


@rule(Kind.pointwise, "signbit")
def signbit(operation: Operation) -> Result:
    dtype = operation.tensor("self").dtype
    if dtype in (torch.bool, torch.uint8):
        return (constant(False, torch.bool),)
    return (call("signbit", operation.value("self", widened(dtype)), dtype=torch.bool),)


# ---- sums, quotients, powers ---------------------------------------------------------------------------------------


LEAST_INTEGER = -(1 << 63)
"""The least int64, which is its own negative."""


def scaled(operation: Operation, name: str, dtype: torch.dtype) -> Expr:
    """`alpha * operand`."""
    operation.needs_room("alpha")
    alpha = operation.arguments.get("alpha", 1)
    value = operation.taken(name, dtype)
    return value if alpha == 1 else primitive("mul", operation.value("alpha", dtype), value)


@rule(Kind.pointwise, "add.Tensor", "add.Scalar")
def add(operation: Operation) -> Result:
    dtype = compute_dtype(operation)
    return finish(operation, primitive("add", operation.taken("self", dtype), scaled(operation, "other", dtype)))


def difference(operation: Operation, minuend: str, subtrahend: str) -> Expr:
    """One operand less `alpha` times another. Eager adds `-alpha` times it; the least integer is its own negative."""
    dtype = compute_dtype(operation)
    op = "add" if operation.arguments.get("alpha", 1) == LEAST_INTEGER else "sub"
    return primitive(op, operation.taken(minuend, dtype), scaled(operation, subtrahend, dtype))


@rule(Kind.pointwise, "sub.Tensor", "sub.Scalar")
def sub(operation: Operation) -> Result:
    return finish(operation, difference(operation, "self", "other"))


@rule(Kind.pointwise, "rsub.Tensor", "rsub.Scalar")
def rsub(operation: Operation) -> Result:
    return finish(operation, difference(operation, "other", "self"))


@rule(Kind.pointwise, "mul.Tensor", "mul.Scalar")
def mul(operation: Operation) -> Result:
    """Eager reads a factor, like a divisor, as it is."""
    dtype = compute_dtype(operation)
    return finish(operation, primitive("mul", operation.taken("self", dtype), operation.value("other", dtype)))


@rule(Kind.pointwise, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def div(operation: Operation) -> Result:
    mode = operation.arguments.get("rounding_mode")
    if mode == "floor":
        return floor_divide(operation)
    dtype = compute_dtype(operation)
    if mode == "trunc" and is_integer(dtype):
        return divided(operation, "div", "truncdiv_int")
    needs_floats(operation)
    dividend, number = operation.taken("self", dtype), operation.arguments["other"]
    if mode is None and operation.output.device.type != "cpu" and _is_beyond_float32(number) and dtype is torch.float32:
        return finish(operation, call("mul", dividend, constant(1.0 / number, dtype)))
    quotient = call("div", dividend, operation.value("other", dtype))
    return finish(operation, quotient if mode is None else call("trunc", quotient))


def _is_beyond_float32(number: object) -> bool:
    """Whether it is infinite as a float32 alone. Eager's kernel for CUDA takes the inverse before it rounds."""
    return isinstance(number, int | float) and not math.isinf(number) and abs(number) > MOST_FLOAT32


def is_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype is not torch.bool


@rule(Kind.pointwise, "floor_divide", "floor_divide.Scalar")
def floor_divide(operation: Operation) -> Result:
    return divided(operation, "floor_div_float", "floordiv_int")


@rule(Kind.pointwise, "remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(operation: Operation) -> Result:
    return divided(operation, "remainder_float", "mod_int")


def divided(operation: Operation, on_floats: str, on_integers: str) -> Result:
    """A quotient or remainder, by the dtype of the result."""
    dtype = compute_dtype(operation)
    if dtype is torch.bool:
        raise Declined("division of booleans")
    if is_integer(dtype):
        operands = operation.value("self", dtype), operation.value("other", dtype)
        return finish(operation, integer_division(on_integers, *operands))
    return finish(operation, call(on_floats, operation.rounded("self", dtype), operation.rounded("other", dtype)))


POWERS: dict[float, Callable[[Expr], Expr]] = {
    1: lambda x: x,
    2: lambda x: call("mul", x, x),
    3: lambda x: call("mul", call("mul", x, x), x),
}
FLOAT_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -0.5: lambda x: call("rsqrt", x),
    -1: lambda x: call("reciprocal", x),
    -2: lambda x: call("reciprocal", call("mul", x, x)),
}
"""The exponents for which eager does not call pow either."""
SQUARE_ROOT = 0.5
"""One more of them."""


MOST_FLOAT32 = torch.finfo(torch.float32).max
"""The largest finite float32."""


def _is_float32(number: float) -> bool:
    """Whether float32 holds the number."""
    is_in_range = abs(number) < MOST_FLOAT32
    return is_in_range and struct.unpack("f", struct.pack("f", number))[0] == number


@rule(Kind.pointwise, "pow.Tensor_Scalar")
def pow_scalar(operation: Operation) -> Result:
    dtype = compute_dtype(operation)
    base, exponent = operation.value("self", dtype), operation.number("exponent")
    if dtype is torch.bool:
        raise Declined("power of booleans")
    if exponent == SQUARE_ROOT and dtype.is_floating_point:
        return finish(operation, square_root(base, operation.output))
    special = POWERS.get(exponent) or (FLOAT_POWERS.get(exponent) if dtype.is_floating_point else None)
    if not dtype.is_floating_point and exponent < 0:
        raise Declined("a negative power of integers")
    if dtype is torch.float32 and float(exponent).is_integer() and not _is_float32(exponent):
        raise Declined("an exponent that is even or odd as float64 says")
    return finish(operation, special(base) if special else call("pow", base, operation.taken("exponent", dtype)))


@rule(Kind.pointwise, "pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(operation: Operation) -> Result:
    dtype = compute_dtype(operation)
    if dtype is torch.bool:
        raise Declined("power of booleans")
    return finish(operation, call("pow", operation.rounded("self", dtype), operation.taken("exponent", dtype)))


@rule(Kind.pointwise, "linalg_cross")
def cross(operation: Operation) -> Result:
    """`a1 b2 - a2 b1`, where 1 and 2 are the next and the next but one along a dimension of three."""
    (one, two), (other_one, other_two) = (neighbours(operation, name) for name in ("self", "other"))
    dtype = compute_dtype(operation)
    if dtype is torch.bool:
        raise Declined("booleans")
    a_one, a_two, b_one, b_two = (
        element(operation.tensor(name), at, dtype)
        for name, at in (("self", one), ("self", two), ("other", other_one), ("other", other_two))
    )
    return finish(operation, call("sub", call("mul", a_one, b_two), call("mul", a_two, b_one)))


def neighbours(operation: Operation, name: str) -> list[tuple[Index, ...]]:
    """The coordinates of the next element and the next but one along `dim`, in an argument that is broadcast."""
    tensor, rank = operation.tensor(name), len(operation.output.shape)
    dim = operation["dim"] % rank
    found = []
    for step in (1, 2):
        at = list(broadcast(tensor, operation.output.shape))
        at[dim - rank] = (Symbol(f"d{dim}") + step) % 3
        found.append(tuple(at))
    return found


@rule(Kind.pointwise, "square")
def square(operation: Operation) -> Result:
    value = operation.value("self", compute_dtype(operation))
    return finish(operation, primitive("mul", value, value))


def shift(op: str) -> Callable[[Operation], Result]:
    """A rule: a shift by a constant below the width of the integers; what others mean is the machine's."""

    def lower(operation: Operation) -> Result:
        dtype = operation.output.dtype
        if dtype.is_floating_point or not 0 <= operation.number("other") < 8 * dtype.itemsize - 1:
            raise Declined("shift")
        return (call(op, operation.value("self", dtype), operation.value("other", dtype)),)

    return lower


record(Kind.pointwise, shift("shl"), "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar")
record(Kind.pointwise, shift("shr"), "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")

# ---- selection, conversion -----------------------------------------------------------------------------------------


@rule(Kind.pointwise, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(operation: Operation) -> Result:
    if operation.tensor("condition").dtype is not torch.bool:
        raise Declined("condition is not boolean")
    return _chosen(operation, operation.value("condition", torch.bool), "self", "other")


def _chosen(operation: Operation, condition: Expr, yes: str, no: str) -> Result:
    """One of two arguments. Halves are widened, so that what was computed in float32 is not rounded on the way."""
    dtype = widened(operation.output.dtype)
    arms = (operation.value(name, dtype) for name in (yes, no))
    return finish(operation, call("where", condition, *arms, dtype=dtype))


@rule(Kind.pointwise, "masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(operation: Operation) -> Result:
    if operation.tensor("mask").dtype is not torch.bool:
        raise Declined("mask is not boolean")
    operation.needs_room("value")
    return _chosen(operation, operation.value("mask", torch.bool), "value", "self")


def clamped(value: Expr, low: Expr | None, high: Expr | None) -> Expr:
    """`min(max(value, low), high)`; NaN stays NaN, and of two equal zeros the value's own is kept, as eager does."""
    if low is not None:
        value = primitive("maximum", low, value)
    return value if high is None else primitive("minimum", high, value)


@rule(Kind.pointwise, "clamp", "clamp.Tensor", "clamp_min", "clamp_max", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp(operation: Operation) -> Result:
    dtype = compute_dtype(operation)
    low, high = (_optional(operation, name, dtype) for name in ("min", "max"))
    return finish(operation, clamped(operation.value("self", dtype), low, high))


def _optional(operation: Operation, name: str, dtype: torch.dtype) -> Expr | None:
    operation.needs_room(name)
    return None if operation.arguments.get(name) is None else operation.value(name, dtype)


@rule(
    Kind.pointwise, "_to_copy", "clone", "lift_fresh_copy", "positive", "prims.convert_element_type.default", "to.dtype"
)
def copied(operation: Operation) -> Result:
    name = "self" if "self" in operation.arguments else "a"
    if operation.arguments.get("layout") not in (None, torch.strided) or operation.arguments.get("pin_memory"):
        raise Declined("layout")
    return (operation.value(name, operation.output.dtype),)


@rule(Kind.pointwise, "copy")
def copy(operation: Operation) -> Result:
    source = operation.tensor("src")
    return (convert(operation.value("src", source.dtype), operation.output.dtype),)


@rule(Kind.pointwise, "nan_to_num")
def nan_to_num(operation: Operation) -> Result:
    needs_floats(operation)
    dtype = operation.output.dtype
    x, limits = operation.value("self", dtype), torch.finfo(dtype)
    given = (operation["nan"], operation["posinf"], operation["neginf"])
    nan, high, low = (d if g is None else g for g, d in zip(given, (0.0, limits.max, limits.min), strict=True))
    x32 = convert(x, widened(dtype))
    infinity = constant(math.inf, x32.dtype)
    y = call("where", call("isnan", x32), constant(nan, x32.dtype), x32)
    y = call("where", call("eq", x32, infinity), constant(high, x32.dtype), y)
    y = call("where", call("eq", x32, call("neg", infinity)), constant(low, x32.dtype), y)
    return finish(operation, y)


# ---- activations: formulas over one dtype ----------------------------------------------------------------------------


class Formula:
    """Arithmetic on expressions of one dtype, so that a formula reads as one."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def _with(self, op: str, other: Formula | float, swapped: bool = False) -> Formula:
        value = other.expr if isinstance(other, Formula) else constant(other, self.expr.dtype)
        return Formula(call(op, value, self.expr) if swapped else call(op, self.expr, value))

    def __add__(self, other: Formula | float) -> Formula:
        return self._with("add", other)

    def __radd__(self, other: float) -> Formula:
        return self._with("add", other, True)

    def __sub__(self, other: Formula | float) -> Formula:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Formula:
        return self._with("sub", other, True)

    def __mul__(self, other: Formula | float) -> Formula:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Formula:
        return self._with("mul", other, True)

    def __truediv__(self, other: Formula | float) -> Formula:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Formula:
        return self._with("div", other, True)

    def __lt__(self, other: Formula | float) -> Formula:
        return self._with("lt", other)

    def __le__(self, other: Formula | float) -> Formula:
        return self._with("le", other)

    def __gt__(self, other: Formula | float) -> Formula:
        return self._with("gt", other)

    def __ge__(self, other: Formula | float) -> Formula:
        return self._with("ge", other)

    def is_equal(self, other: Formula | float) -> Formula:
        return self._with("eq", other)

    def __neg__(self) -> Formula:
        return self.of("neg")

    def __and__(self, other: Formula) -> Formula:
        return self._with("logical_and", other)

    def __or__(self, other: Formula) -> Formula:
        return self._with("logical_or", other)

    def of(self, op: str, *others: Formula) -> Formula:
        """`op(self, *others)`."""
        return Formula(call(op, self.expr, *(other.expr for other in others)))

    def where(self, yes: Formula | float, no: Formula | float) -> Formula:
        """`yes` where self is true, else `no`; at least one of them a formula."""
        dtype = next(arm.expr.dtype for arm in (yes, no) if isinstance(arm, Formula))
        arms = (arm.expr if isinstance(arm, Formula) else constant(arm, dtype) for arm in (yes, no))
        return Formula(call("where", self.expr, *arms, dtype=dtype))

    def maximum(self, other: Formula | float) -> Formula:
        return self._with("maximum", other)

    def minimum(self, other: Formula | float) -> Formula:
        return self._with("minimum", other)

    def clamp(self, low: float, high: float) -> Formula:
        """As `clamped`."""
        dtype = self.expr.dtype
        return Formula(clamped(self.expr, constant(low, dtype), constant(high, dtype)))


def formula(
    *tensors: str, kind: Kind = Kind.pointwise, targets: tuple[str, ...], rounds_numbers: bool = False
) -> Callable[[Any], Any]:
    """Declares `function(operation, *values)`, over floating point values of the named arguments, as a rule.

    `rounds_numbers`: eager's kernel takes a number as an element of the output's dtype.
    """

    def declare(function: Callable[..., Formula]) -> Callable[..., Formula]:
        def lower(operation: Operation) -> Result:
            needs_floats(operation)
            dtype = compute_dtype(operation)
            value = operation.rounded if rounds_numbers else operation.value
            values = (Formula(value(name, dtype)) for name in tensors)
            return finish(operation, function(operation, *values).expr)

        record(kind, lower, *targets)
        return function

    return declare


def _number(operation: Operation, name: str) -> float:
    return cast(float, operation.number(name))


@rule(Kind.pointwise, "relu")
def relu(operation: Operation) -> Result:
    dtype = compute_dtype(operation)
    return finish(operation, clamped(operation.value("self", dtype), constant(0, dtype), None))


def by_normal_tail(name: str, x: Formula) -> Formula:
    """gelu or its slope, by functions of their own: `1 + erf` has no digits left in the left tail.

    Raises: Declined in float64, where eager's own `erf` decides about the digits that are left.
    """
    if x.expr.dtype is torch.float64:
        raise Declined("the left tail in float64")
    return x.of(name)


def gelu_inner(x: Formula) -> Formula:
    """The argument of tanh in the approximation of gelu."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))


@formula("self", targets=("gelu",))
def gelu(operation: Operation, x: Formula) -> Formula:
    if operation["approximate"] == "tanh":
        return x * (2.0 * gelu_inner(x)).of("sigmoid")  # x/2 (1 + tanh) has no digits left in the left tail
    return by_normal_tail("gelu", x)


@formula("grad_output", "self", targets=("gelu_backward",))
def gelu_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    if operation["approximate"] != "tanh":
        return gradient * by_normal_tail("gelu_slope", x)
    t = gelu_inner(x).of("tanh")
    slope = math.sqrt(2 / math.pi) * (1.0 + (3 * 0.044715) * (x * x))
    return gradient * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def logistic(x: Formula) -> Formula:
    """`1 / (1 + e^-x)` as eager has it inside of silu, whose gradient shares it: 0 where the exponential overflows."""
    return (1.0 + x.of("neg").of("exp")).of("reciprocal")


@formula("self", targets=("silu",))
def silu(operation: Operation, x: Formula) -> Formula:
    return x * logistic(x)


@formula("grad_output", "self", targets=("silu_backward",))
def silu_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    s = logistic(x)
    return gradient * s * (1.0 + x * (1.0 - s))


@formula("grad_output", "output", targets=("tanh_backward",))
def tanh_backward(operation: Operation, gradient: Formula, y: Formula) -> Formula:
    return gradient * (1.0 - y * y)


@formula("grad_output", "output", targets=("sigmoid_backward",))
def sigmoid_backward(operation: Operation, gradient: Formula, y: Formula) -> Formula:
    return gradient * (1.0 - y) * y


@formula("grad_output", "self", targets=("threshold_backward",))
def threshold_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    return (x <= _number(operation, "threshold")).where(0.0, gradient)


@formula("self", targets=("threshold",))
def threshold(operation: Operation, x: Formula) -> Formula:
    return (x <= _number(operation, "threshold")).where(_number(operation, "value"), x)


@formula("self", targets=("hardtanh",))
def hardtanh(operation: Operation, x: Formula) -> Formula:
    return x.clamp(_number(operation, "min_val"), _number(operation, "max_val"))


@formula("grad_output", "self", targets=("hardtanh_backward",))
def hardtanh_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    outside = (x <= _number(operation, "min_val")) | (x >= _number(operation, "max_val"))
    return outside.where(0.0, gradient)


@formula("self", targets=("relu6",))
def relu6(operation: Operation, x: Formula) -> Formula:
    return x.clamp(0.0, 6.0)


@formula("self", targets=("hardswish",))
def hardswish(operation: Operation, x: Formula) -> Formula:
    return x * (x + 3.0).clamp(0.0, 6.0) / 6.0


@formula("grad_output", "self", targets=("hardswish_backward",))
def hardswish_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    inner = (x < 3.0).where(gradient * (x / 3.0 + 0.5), gradient)
    return (x <= -3.0).where(0.0, inner)


@formula("self", targets=("hardsigmoid",))
def hardsigmoid(operation: Operation, x: Formula) -> Formula:
    return (x + 3.0).clamp(0.0, 6.0) / 6.0


SIXTH_OF_FLOAT = torch.tensor(1 / 6, dtype=torch.float32).item()
"""What eager multiplies with in every dtype, float64 too."""


@formula("grad_output", "self", targets=("hardsigmoid_backward",))
def hardsigmoid_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    return ((x > -3.0) & (x < 3.0)).where(gradient * SIXTH_OF_FLOAT, 0.0)


@formula("self", targets=("leaky_relu",))
def leaky_relu(operation: Operation, x: Formula) -> Formula:
    return (x > 0.0).where(x, x * _number(operation, "negative_slope"))


@formula("grad_output", "self", targets=("leaky_relu_backward",))
def leaky_relu_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    return (x > 0.0).where(gradient, gradient * _number(operation, "negative_slope"))


def is_below_zero(operation: Operation, x: Formula) -> Formula:
    """Where an exponential unit bends: on the CPU not at zero, which an infinite or undefined `alpha` tells."""
    return x < 0.0 if operation.output.device.type == "cpu" else x <= 0.0


@formula("self", targets=("elu",))
def elu(operation: Operation, x: Formula) -> Formula:
    alpha, scale, inner = (_number(operation, name) for name in ("alpha", "scale", "input_scale"))
    return is_below_zero(operation, x).where((x * inner).of("expm1") * (alpha * scale), x * scale)


@formula("grad_output", "self_or_result", targets=("elu_backward",))
def elu_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    alpha, scale, inner = (_number(operation, name) for name in ("alpha", "scale", "input_scale"))
    if operation["is_result"]:
        below = gradient * inner * (x + alpha * scale)
    else:
        below = gradient * (inner * alpha * scale) * (x * inner).of("exp")
    return (x <= 0.0).where(below, gradient * scale)


@formula("self", targets=("softplus",))
def softplus(operation: Operation, x: Formula) -> Formula:
    beta, limit = _number(operation, "beta"), _number(operation, "threshold")
    return (x * beta > limit).where(x, (x * beta).of("exp").of("log1p") / beta)


@formula("grad_output", "self", targets=("softplus_backward",))
def softplus_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    beta, limit = _number(operation, "beta"), _number(operation, "threshold")
    z = (x * beta).of("exp")
    return (x * beta > limit).where(gradient, gradient * z / (z + 1.0))


@formula("self", targets=("mish",))
def mish(operation: Operation, x: Formula) -> Formula:
    return x * x.of("exp").of("log1p").of("tanh")


@formula("grad_output", "mask", targets=("native_dropout_backward",))
def native_dropout_backward(operation: Operation, gradient: Formula, mask: Formula) -> Formula:
    """A masked fraction is a zero of its sign, a masked integer one without, which no GPU of eager's takes."""
    is_fraction = operation.tensor("grad_output").dtype.is_floating_point
    if not is_fraction and operation.output.device.type != "cpu":
        raise Declined("eager has none of integers there, and says so")
    masked = gradient * mask
    kept = masked if is_fraction else masked + 0.0
    return kept * _number(operation, "scale")


@formula("self", "tensor1", "tensor2", targets=("addcmul",))
def addcmul(operation: Operation, x: Formula, a: Formula, b: Formula) -> Formula:
    return x + _number(operation, "value") * a * b


@formula("a", "b", "c", targets=("prims.fma.default",))
def fma(operation: Operation, a: Formula, b: Formula, c: Formula) -> Formula:
    """What Dynamo makes of `addcmul` with a value; eager rounds the product."""
    return a * b + c


@formula("self", "tensor1", "tensor2", targets=("addcdiv",))
def addcdiv(operation: Operation, x: Formula, a: Formula, b: Formula) -> Formula:
    return x + _number(operation, "value") * a / b


@formula("self", "end", "weight", targets=("lerp.Scalar", "lerp.Tensor"))
def lerp(operation: Operation, start: Formula, end: Formula, weight: Formula) -> Formula:
    near_start = weight.of("abs") < 0.5
    return near_start.where(start + weight * (end - start), end - (end - start) * (1.0 - weight))


@formula("self", targets=("frac",))
def frac(operation: Operation, x: Formula) -> Formula:
    return x - x.of("trunc")
