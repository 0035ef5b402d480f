"""Complex numbers: two real numbers each, of which a rule gives both or does the same to either.

A tensor of complex numbers has one more coordinate than dimensions, its lane: 0 is the real part and 1 the imaginary.
The formulas are those of eager's own loops, so that infinities, NaN and zeros come out as they do there. What eager
leaves to the C library (tan, pow, ...) is left to it here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol
from assay.compiler.ir.loops.kernel import Element, Expr
from assay.compiler.ir.loops.lowered import LANES, Tensor, coordinates
from assay.compiler.ir.loops.rewrite import Expansion, constant, convert, on_lane
from assay.compiler.ops.pointwise.pointwise import Formula, neighbours
from assay.compiler.ops.registry import (
    Declined,
    Kind,
    Op,
    Operation,
    Result,
    Rule,
    Scatter,
    View,
    broadcast,
    name_of_target,
    record,
    value_of,
)


def lane_of(rank: int) -> Index:
    """The coordinate of the lane among those of a tensor of `rank` dimensions."""
    return Symbol(f"d{rank}")


# ---- the same to either lane -----------------------------------------------------------------------------------------

REAL_OPERANDS = ("condition", "mask", "index", "indices")
FILLED = ("value", "fill")
"""Arguments that may be a number, which is another for each lane."""
NUMBERS = (bool, int, float, complex)


def lanewise(rule: Rule) -> Rule:
    """A rule for real numbers as one that is applied to the real parts and to the imaginary parts alike."""

    def lower(operation: Operation) -> Result:
        _wants_complex_operands(operation)
        filled = next((name for name in FILLED if isinstance(operation.arguments.get(name), NUMBERS)), None)
        if filled is None:
            return _of_lane(rule, operation, None)
        number = complex(operation[filled])
        if repr(number) == repr(0j):  # a zero of the other sign is another number
            return _of_lane(rule, _with(operation, filled, 0), None)
        (real,) = _of_lane(rule, _with(operation, filled, number.real), ZERO)
        (imaginary,) = _of_lane(rule, _with(operation, filled, number.imag), ONE)
        if isinstance(real, Scatter | View) or isinstance(imaginary, Scatter | View) or not (real and imaginary):
            raise Declined("updates that are other numbers for each lane")
        return (on_lane(lane_of(len(operation.output.shape)), real, imaginary),)

    return lower


def _with(operation: Operation, name: str, value: float) -> Operation:
    return replace(operation, arguments={**operation.arguments, name: value})


def _of_lane(rule: Rule, operation: Operation, lane: Index | None) -> Result:
    """The results on one lane, or on whichever the last coordinate says."""
    real = replace(
        operation,
        arguments=pytree.tree_map_only(Tensor, _real, dict(operation.arguments)),
        outputs=tuple(output and _real(output) for output in operation.outputs),
    )
    results = zip(rule(real), operation.outputs, strict=True)
    return tuple(_on_lanes(operation, result, output, lane) for result, output in results)


def _wants_complex_operands(operation: Operation) -> None:
    """Raises: Declined where a real operand would be the same for either part, or there is a factor. Into a vector
    `index_add` multiplies by 1 too, as `scaled` says.
    """
    values = {name: value for name, value in operation.arguments.items() if name not in REAL_OPERANDS}
    operands = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
    if not all(tensor.dtype.is_complex for tensor in (*operands, operation.output)):
        raise Declined("real and complex operands")
    adds_to_a_vector = {"source", "alpha"} <= operation.arguments.keys() and len(operation.output.shape) == 1
    if operation.arguments.get("alpha", 1) != 1 or adds_to_a_vector:
        raise Declined("a product")


def _real(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype=tensor.dtype.to_real())


def _on_lanes(
    operation: Operation, result: Expr | View | Scatter | None, output: Tensor | None, lane: Index | None
) -> Any:
    """A result over real numbers, with a lane for each element that it reads of a complex tensor."""
    if result is None or output is None:
        return None
    if isinstance(result, View):
        return with_lane(result, output)
    complex_ = {t.name for t in pytree.tree_leaves(operation.arguments) if isinstance(t, Tensor) and t.dtype.is_complex}
    lane = lane_of(len(output.shape)) if lane is None else lane
    if not isinstance(result, Scatter):
        return _with_lanes(complex_, lane)(result)
    initial = _on_lanes(operation, result.initial, output, lane)
    lane = lane_of(len(result.over))
    update = _with_lanes(complex_, lane)(result.update)
    return Scatter(initial, (*result.over, LANES), (*result.at, lane), update, result.mode)


def _with_lanes(names: set[str], lane: Index) -> Expansion:
    def lookup(element: Element) -> tuple[Expr, bool] | None:
        return (Element(element.tensor, (*element.at, lane), element.dtype), True) if element.tensor in names else None

    return Expansion(lookup)


def with_lane(view: View, output: Tensor) -> View:
    """A view of complex numbers as one of their lanes too."""
    return replace(view, at=(*view.at, lane_of(len(output.shape))))


_PADDINGS = [
    f"{kind}_pad{count}d{way}"
    for kind in ("reflection", "replication")
    for count in (1, 2, 3)
    for way in ("", "_backward")
]
SAME_ON_LANES = frozenset(
    name_of_target(target)
    for target in (
        *"clone lift_fresh_copy neg sum.default sum.dim_IntList cumsum tril triu trace".split(),
        *"cat stack flip roll rot90 diag_embed repeat constant_pad_nd im2col col2im".split(),
        *"slice_scatter select_scatter diagonal_scatter slice_backward select_backward diagonal_backward".split(),
        *"gather index_select index.Tensor _unsafe_index.Tensor _unsafe_masked_index take embedding".split(),
        *"scatter.src scatter.value scatter_add index_copy index_add index_put _unsafe_index_put put".split(),
        *"index_fill.int_Scalar index_fill.int_Tensor _unsafe_masked_index_put_accumulate unfold_backward".split(),
        *"max_unpool2d max_unpool3d channel_shuffle pixel_shuffle pixel_unshuffle".split(),
        *_PADDINGS,
    )
)
RULES: dict[str, Rule] = {}
"""The rules for complex numbers of operators that do not the same to either lane."""


def rule_of(op: Op) -> Rule | None:
    """The rule for calls that take or give complex numbers; None where there is none."""
    if op.rule is not None and (op.kind is Kind.view or op.target in SAME_ON_LANES):
        return RULES.get(op.target) or lanewise(op.rule)
    return RULES.get(op.target)


def record_complex(rule: Rule, *targets: str) -> None:
    """Adds the rule for complex numbers of each target."""
    RULES.update(dict.fromkeys(map(name_of_target, targets), rule))


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number as an expression for each part, so that a formula reads as one."""

    real: Formula
    imag: Formula

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __mul__(self, other: Complex) -> Complex:
        """Each product is rounded, as in eager: fused with the sum, `z * conj(z)` would not be real."""

        def product(a: Formula, b: Formula) -> Formula:
            return (a * b).of("rounded")

        real = product(self.real, other.real) - product(self.imag, other.imag)
        return Complex(real, product(self.real, other.imag) + product(self.imag, other.real))

    def __truediv__(self, other: Complex) -> Complex:
        """Scaled by the larger part of the divisor; by zero, each part by itself."""
        c, d = other.real, other.imag
        c_size, d_size = c.of("abs"), d.of("abs")
        is_real = c_size >= d_size
        large, small = is_real.where(c, d), is_real.where(d, c)
        ratio = small / large
        scale = 1.0 / (large + small * ratio)
        real = is_real.where(self.real + self.imag * ratio, self.real * ratio + self.imag) * scale
        imag = is_real.where(self.imag - self.real * ratio, self.imag * ratio - self.real) * scale
        is_zero = c_size.is_equal(0.0) & d_size.is_equal(0.0)
        return Complex(is_zero.where(self.real / c_size, real), is_zero.where(self.imag / d_size, imag))

    def is_equal(self, other: Complex) -> Formula:
        return self.real.is_equal(other.real) & self.imag.is_equal(other.imag)

    def conjugate(self) -> Complex:
        return Complex(self.real, -self.imag)

    def abs(self) -> Formula:
        return self.real.of("hypot", self.imag)

    def where(self, condition: Formula, other: Complex) -> Complex:
        """Itself where a condition holds, else the other."""
        return Complex(condition.where(self.real, other.real), condition.where(self.imag, other.imag))


def parts_of(value: object, at: tuple[Index, ...], dtype: torch.dtype) -> Complex:
    """A tensor at coordinates, a size or a number as two numbers of `dtype`."""
    if isinstance(value, Tensor) and value.dtype.is_complex:
        kind = value.dtype.to_real()
        parts = (convert(Element(value.name, (*at, lane), kind), dtype) for lane in (ZERO, ONE))
        return Complex(*map(Formula, parts))
    if isinstance(value, complex):
        return Complex(Formula(constant(value.real, dtype)), Formula(constant(value.imag, dtype)))
    real = (
        convert(Element(value.name, at, value.dtype), dtype)
        if isinstance(value, Tensor)
        else value_of(value, (), dtype)
    )
    return Complex(Formula(real), Formula(constant(0.0, dtype)))


def parts(operation: Operation, name: str) -> Complex:
    """Argument `name` at the coordinates of the output, in the real dtype of the result."""
    value, output = operation.arguments[name], operation.output
    at = broadcast(value, output.shape) if isinstance(value, Tensor) else ()
    return parts_of(value, at, _computed_in(operation))


def _computed_in(operation: Operation) -> torch.dtype:
    """The dtype of the parts: that of a complex result, else the widest of the complex operands."""
    if operation.output.dtype.is_complex:
        return operation.output.dtype.to_real()
    found = [value for value in operation.arguments.values() if isinstance(value, Tensor) and value.dtype.is_complex]
    return max((tensor.dtype.to_real() for tensor in found), key=lambda dtype: dtype.itemsize)


def result(operation: Operation, value: Complex | Formula) -> Result:
    """The elements of the result, rounded to its dtype."""
    output = operation.output
    if isinstance(value, Formula):
        return (convert(value.expr, output.dtype),)
    dtype = output.dtype.to_real()
    if not output.dtype.is_complex:
        raise Declined("a complex number in a real tensor")
    real, imag = (convert(part.expr, dtype) for part in (value.real, value.imag))
    return (on_lane(lane_of(len(output.shape)), real, imag),)


def on_parts(
    *names: str, targets: str
) -> Callable[[Callable[..., Complex | Formula]], Callable[..., Complex | Formula]]:
    """Declares `function(operation, *values)`, over the complex values of the named arguments, as a rule."""

    def declare(function: Callable[..., Complex | Formula]) -> Callable[..., Complex | Formula]:
        def lower(operation: Operation) -> Result:
            return result(operation, function(operation, *(parts(operation, name) for name in names)))

        record_complex(lower, *targets.split())
        return function

    return declare


record(Kind.pointwise, None, "complex", "polar", "_conj_physical")


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def scaled(operation: Operation, value: Complex, sign: int = 1) -> Complex:
    """`alpha * value`, or that negated: a product even by 1, which makes NaN of an infinite part beside the other."""
    alpha = operation.arguments.get("alpha", 1)
    return parts_of(sign * alpha, (), _computed_in(operation)) * value


@on_parts("self", "other", targets="add.Tensor add.Scalar")
def add(operation: Operation, a: Complex, b: Complex) -> Complex:
    return a + scaled(operation, b)


@on_parts("self", "other", targets="sub.Tensor sub.Scalar")
def sub(operation: Operation, a: Complex, b: Complex) -> Complex:
    return a + scaled(operation, b, -1)


@on_parts("self", "other", targets="rsub.Tensor rsub.Scalar")
def rsub(operation: Operation, a: Complex, b: Complex) -> Complex:
    return b + scaled(operation, a, -1)


@on_parts("self", "other", targets="mul.Tensor mul.Scalar")
def mul(operation: Operation, a: Complex, b: Complex) -> Complex:
    return a * b


@on_parts("self", "other", targets="div.Tensor div.Scalar true_divide.Tensor")
def div(operation: Operation, a: Complex, b: Complex) -> Complex:
    return a / b


@on_parts("self", targets="reciprocal")
def reciprocal(operation: Operation, x: Complex) -> Complex:
    return of_real(1.0, x) / x


@on_parts("self", targets="square")
def square(operation: Operation, x: Complex) -> Complex:
    return x * x


def of_real(value: float, like: Complex) -> Complex:
    dtype = like.real.expr.dtype
    return Complex(Formula(constant(value, dtype)), Formula(constant(0.0, dtype)))


@on_parts("self", targets="_conj_physical")
def conjugate(operation: Operation, x: Complex) -> Complex:
    return x.conjugate()


@on_parts("self", targets="abs")
def absolute(operation: Operation, x: Complex) -> Formula:
    return x.abs()


@on_parts("self", targets="angle")
def angle(operation: Operation, x: Complex) -> Formula:
    return x.imag.of("atan2", x.real)


@on_parts("self", targets="sgn")
def sign(operation: Operation, x: Complex) -> Complex:
    """`x / |x|`, 0 for 0."""
    size = x.abs()
    is_zero = size.is_equal(0.0)
    return Complex(is_zero.where(0.0, x.real / size), is_zero.where(0.0, x.imag / size))


@on_parts("self", "other", targets="eq.Tensor eq.Scalar")
def equal(operation: Operation, a: Complex, b: Complex) -> Formula:
    return a.is_equal(b)


@on_parts("self", "other", targets="ne.Tensor ne.Scalar")
def not_equal(operation: Operation, a: Complex, b: Complex) -> Formula:
    return a.is_equal(b).of("logical_not")


@on_parts("self", "tensor1", "tensor2", targets="addcmul")
def addcmul(operation: Operation, x: Complex, a: Complex, b: Complex) -> Complex:
    operation.needs_room("value")
    return x + parts(operation, "value") * a * b


@on_parts("self", "tensor1", "tensor2", targets="addcdiv")
def addcdiv(operation: Operation, x: Complex, a: Complex, b: Complex) -> Complex:
    operation.needs_room("value")
    return x + parts(operation, "value") * a / b


def cross(operation: Operation) -> Result:
    """`a1 b2 - a2 b1`, as of real numbers."""
    dtype = _computed_in(operation)
    (a, b), (c, d) = (
        [parts_of(operation[name], at, dtype) for at in neighbours(operation, name)] for name in ("self", "other")
    )
    return result(operation, a * d - b * c)


record_complex(cross, "linalg_cross")


POWERS: Mapping[float, Callable[[Complex], Complex]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -1: lambda x: of_real(1.0, x) / x,
}
"""The exponents for which eager does not call the C library's power."""


@on_parts("self", targets="pow.Tensor_Scalar")
def power(operation: Operation, x: Complex) -> Complex:
    exponent = operation["exponent"]
    if not isinstance(exponent, int | float) or exponent not in POWERS:
        raise Declined("a power of the C library")
    return POWERS[exponent](x)


# ---- selection, conversion, parts ------------------------------------------------------------------------------------


@on_parts("self", "other", targets="where.self where.ScalarOther where.ScalarSelf where.Scalar")
def where(operation: Operation, a: Complex, b: Complex) -> Complex:
    if operation.tensor("condition").dtype is not torch.bool:
        raise Declined("condition is not boolean")
    for name in ("self", "other"):
        operation.needs_room(name)
    return a.where(Formula(operation.value("condition", torch.bool)), b)


@on_parts("self", "value", targets="masked_fill.Scalar masked_fill.Tensor")
def masked_fill(operation: Operation, x: Complex, value: Complex) -> Complex:
    if operation.tensor("mask").dtype is not torch.bool:
        raise Declined("mask is not boolean")
    operation.needs_room("value")
    return value.where(Formula(operation.value("mask", torch.bool)), x)


@on_parts("self", targets="_to_copy to.dtype")
def copied(operation: Operation, x: Complex) -> Complex:
    """To a real dtype it is ATen's, which warns that it discards a part."""
    if operation.arguments.get("layout") not in (None, torch.strided) or operation.arguments.get("pin_memory"):
        raise Declined("layout")
    return x


def as_given(argument: str, targets: str) -> None:
    """Records operators whose result is one argument, in the dtype and the shape of the result."""

    @on_parts(argument, targets=targets)
    def given(operation: Operation, value: Complex) -> Complex:
        operation.needs_room(argument)
        return value


as_given("a", "prims.convert_element_type.default")
as_given("src", "copy")
as_given("value", "fill.Scalar fill.Tensor")
as_given("fill_value", "full full_like new_full")
as_given("s", "scalar_tensor")


@on_parts("real", "imag", targets="complex")
def complex_(operation: Operation, real: Complex, imag: Complex) -> Complex:
    return Complex(real.real, imag.real)


@on_parts("abs", "angle", targets="polar")
def polar(operation: Operation, size: Complex, angle: Complex) -> Complex:
    return Complex(size.real * angle.real.of("cos"), size.real * angle.real.of("sin"))


def of_number(value: float, targets: str) -> None:
    """Records the tensors of one real number."""

    @on_parts(targets=targets)
    def fill(operation: Operation) -> Complex:
        dtype = _computed_in(operation)
        return Complex(Formula(constant(value, dtype)), Formula(constant(0.0, dtype)))


of_number(0.0, "zeros zeros_like new_zeros zero")
of_number(1.0, "ones ones_like new_ones")


def part_view(target: str, place: Callable[[Operation, Tensor], tuple[Index, ...]], is_conjugate: bool = False) -> None:
    """Records a view by the coordinates of its elements in the base, lanes included."""

    def lower(operation: Operation) -> Result:
        base = operation.tensor("self")
        return (View(base, place(operation, base), is_conjugate=is_conjugate),)

    record_complex(lower, target)


def _own(operation: Operation) -> tuple[Index, ...]:
    return coordinates(len(operation.output.shape))


part_view("view_as_real", lambda operation, base: _own(operation))
part_view("view_as_complex", lambda operation, base: coordinates(len(base.shape)))
part_view("real", lambda operation, base: (*_own(operation), ZERO))
part_view("imag", lambda operation, base: (*_own(operation), ONE))
part_view("_conj", lambda operation, base: coordinates(len(base.shape) + 1), is_conjugate=True)
