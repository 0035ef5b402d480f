"""Functions of complex numbers: by functions of real ones, in float64, whatever the parts are.

So the parts of a complex64 result are right to their last bit but one wherever the C library's are, with no care for
cancellation and overflow in between. Infinities and NaN are those of the C standard's annex G, which eager's are. What
is not here (tan, the inverse functions, powers of complex numbers) is the C library's in eager too: calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from assay.compiler.ir.loops.rewrite import constant, convert
from assay.compiler.ops.complex.numbers import Complex, of_real, on_parts
from assay.compiler.ops.pointwise.pointwise import Formula
from assay.compiler.ops.registry import Operation

WIDE = torch.float64
Function = Callable[[Complex], Complex]


def function(target: str) -> Callable[[Function], Function]:
    """Declares a function of a complex number in float64 as the rule of an operator."""

    def declare(of: Function) -> Function:
        @on_parts("self", targets=target)
        def lower(operation: Operation, x: Complex) -> Complex:
            return of(Complex(_wide(x.real), _wide(x.imag)))

        return of

    return declare


def _wide(part: Formula) -> Formula:
    return Formula(convert(part.expr, WIDE))


def number(value: float) -> Formula:
    return Formula(constant(value, WIDE))


def times(factor: Formula, angle: Formula) -> Formula:
    """`factor * angle`, where the second is the sine of a number or else bounded: 0 beside an infinite factor is 0."""
    return angle.is_equal(0.0).where(angle, factor * angle)


LARGE = 512.0
"""Beyond it, exponentials are taken apart: a product with a small sine may be finite where they are not."""


@function("exp")
def exponential(z: Complex) -> Complex:
    """`e^a cos b, e^a sin b`."""
    a, b = z.real, z.imag
    is_large = a > LARGE
    size, scale = is_large.where(a - LARGE, a).of("exp"), is_large.where(math.exp(LARGE), number(1.0))
    real, imag = size * b.of("cos") * scale, times(size, b.of("sin")) * scale
    is_wild = b.of("isfinite").of("logical_not")
    real = (a.is_equal(math.inf) & is_wild).where(a, (a.is_equal(-math.inf) & is_wild).where(0.0, real))
    return Complex(real, (a.is_equal(-math.inf) & is_wild).where(0.0, imag))


@function("log")
def logarithm(z: Complex) -> Complex:
    """`log |z|, arg z`; about `|z| = 1` by what `|z|^2` is more than 1, of which no digit cancels."""
    a, b = z.real.of("abs"), z.imag.of("abs")
    large, small = a.maximum(b), a.minimum(b)
    excess = _square_less(large, 1.0) + _square_less(small, 0.0) + (_rest(large) + _rest(small))
    is_near = (large > 0.5) & (large < 1.5) & (small <= 1.5)
    near, far = 0.5 * excess.of("log1p"), a.of("hypot", b).of("log")
    return Complex(is_near.where(near, far), z.imag.of("atan2", z.real))


def _square_less(x: Formula, value: float) -> Formula:
    return x * x - value if value else x * x


def _rest(x: Formula) -> Formula:
    """What the square of a number loses when it is rounded."""
    return x.of("fma", x, -(x * x))


@function("sqrt")
def root(z: Complex) -> Complex:
    """The half plane of positive real parts; scaled, so that no square overflows or is lost."""
    largest = z.real.of("abs").maximum(z.imag.of("abs"))
    is_large, is_small = largest > 1e300, largest < 1e-290
    scale = is_large.where(2.0**-4, is_small.where(2.0**108, number(1.0)))
    back = is_large.where(2.0**2, is_small.where(2.0**-54, number(1.0)))
    a, b = z.real * scale, z.imag * scale
    half = ((a.of("hypot", b) + a.of("abs")) * 0.5).of("sqrt")
    other = half.is_equal(0.0).where(0.0, b.of("abs") / (2.0 * half))
    is_right = a >= 0.0
    real, imag = is_right.where(half, other) * back, is_right.where(other, half) * back
    endless = z.imag.of("abs").is_equal(math.inf)
    of_right, of_left = z.real.is_equal(math.inf), z.real.is_equal(-math.inf)
    unknown = z.imag.of("isnan")
    real = of_right.where(z.real, of_left.where(unknown.where(z.imag, 0.0), real))
    imag = of_right.where(unknown.where(z.imag, 0.0), of_left.where(-z.real, imag))
    real, imag = endless.where(math.inf, real), endless.where(math.inf, imag)
    return Complex(real, imag.of("copysign", z.imag))


@function("rsqrt")
def reciprocal_root(z: Complex) -> Complex:
    return of_real(1.0, z) / root(z)


@function("sinh")
def hyperbolic_sine(z: Complex) -> Complex:
    """`sinh a cos b, cosh a sin b`."""
    a, b = z.real, z.imag
    real, imag = times(b.of("cos"), a.of("sinh")), times(a.of("cosh"), b.of("sin"))
    is_wild = b.of("isfinite").of("logical_not")
    return Complex((a.of("isinf") & is_wild).where(math.inf, real), imag)


@function("cosh")
def hyperbolic_cosine(z: Complex) -> Complex:
    """`cosh a cos b, sinh a sin b`."""
    a, b = z.real, z.imag
    real = a.of("cosh") * b.of("cos")
    imag = times(times(number(1.0), b.of("sin")), a.of("sinh"))
    imag = b.is_equal(0.0).where(b, imag)
    is_wild = b.of("isfinite").of("logical_not")
    return Complex((a.of("isinf") & is_wild).where(math.inf, real), imag)


@function("sin")
def sine(z: Complex) -> Complex:
    """`-i sinh(iz)`, but for an infinity whose sign is not known: that is positive."""
    turned = hyperbolic_sine(Complex(-z.imag, z.real))
    is_wild = z.imag.of("isinf") & z.real.of("isfinite").of("logical_not")
    return Complex(turned.imag, is_wild.where(math.inf, -turned.real))


@function("cos")
def cosine(z: Complex) -> Complex:
    """`cosh(iz)`."""
    return hyperbolic_cosine(Complex(-z.imag, z.real))
