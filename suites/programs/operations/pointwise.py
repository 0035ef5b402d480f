"""Pointwise operations, with promotion and broadcasting, and casts."""

from __future__ import annotations

from assay.suites.programs.operations.record import Operation, each, fixed
from assay.suites.programs.pen import Drawn, Pen, has_fractions, is_bool, is_integer, is_number, is_ordered, is_real

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "int32", "int8", "bool")


def _binary(name: str, symbol: str = "", number: bool = False) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(is_number if number else lambda tensor: True)
        operand = pen.operand(target)
        text = f"{{0}} {symbol} {operand.template}" if symbol else f"{{0}}.{name}({operand.template})"
        return Drawn(text, operand.args)

    return Operation(name, draw)


def _pair(name: str, ordered: bool = True) -> Operation:
    def draw(pen: Pen) -> Drawn:
        target = pen.tensor(is_ordered)
        return Drawn(f"torch.{name}({{0}}, {{1}})", (target, pen.fitting(target, is_ordered)))

    return Operation(name, draw)


def _where(pen: Pen) -> Drawn:
    mask = pen.tensor()
    condition = "{0}" if is_bool(pen[mask]) else "{0} != 0"
    other = pen.fitting(mask)
    return Drawn(f"torch.where({condition}, {{1}}, {pen.scalar(other)})", (mask, other))


def _clamp(pen: Pen) -> Drawn:
    bounds = pen.choices.pick(("min=0", "max=1", "-1, 1", "min=-0.0"))
    return Drawn(f"{{0}}.clamp({bounds})", (pen.tensor(is_ordered),))


def _cast(pen: Pen) -> Drawn:
    return Drawn(f"{{0}}.to(torch.{pen.choices.pick(DTYPES)})", (pen.tensor(),))


def _lerp(pen: Pen) -> Drawn:
    start = pen.tensor(is_real)
    dtype = pen[start].dtype
    return Drawn("{0}.lerp({1}, 0.25)", (start, pen.fitting(start, lambda tensor: tensor.dtype == dtype)))


UNARY = frozenset("sin exp sqrt log1p sigmoid tanh reciprocal square floor round trunc sign erf rsqrt abs neg".split())
"""What may be computed in parts along a dimension, by name."""

POINTWISE = (
    *each("sin exp sqrt log1p sigmoid tanh reciprocal square", "{0}.NAME()", has_fractions),
    *each("floor round trunc sign erf expm1 rsqrt", "{0}.NAME()", is_real),
    *each("relu silu gelu softplus", "torch.nn.functional.NAME({0})", is_real),
    *each("abs neg positive", "{0}.NAME()", is_number),
    *each("isnan logical_not", "{0}.NAME()"),
    *each("bitwise_not", "{0}.NAME()", is_integer),
    *(_binary(name, symbol) for name, symbol in (("add", "+"), ("mul", "*"))),
    *(_binary(name, symbol, True) for name, symbol in (("sub", "-"), ("div", "/"))),
    *(_binary(name) for name in ("eq", "ne", "add", "logical_or")),
    *(_pair(name) for name in ("maximum", "minimum", "lt", "remainder", "fmax", "copysign")),
    Operation("where", _where),
    Operation("clamp", _clamp),
    Operation("lerp", _lerp),
    *(Operation("cast", _cast) for _ in range(3)),
    fixed("float", "{0}.float()"),
    *(fixed("clone", "{0}.clone()") for _ in range(2)),
    *(fixed("contiguous", "{0}.contiguous()") for _ in range(2)),
    fixed("identity", "{0} + 0"),
    fixed("zeros_like", "torch.zeros_like({0})"),
    fixed("new_ones", "{0}.new_ones({0}.shape)"),
    fixed("conj_physical", "{0}.conj_physical()"),
)
