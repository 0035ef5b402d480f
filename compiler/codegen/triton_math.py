"""Functions that generated Triton kernels call beside those of CUDA's device library, `d`.

Where Triton interprets kernels, `d` is `interpreted.py`, which has the same names.
"""

from __future__ import annotations

import triton
import triton.language as tl

if triton.knobs.runtime.interpret:
    from compiler.codegen import interpreted as d
else:
    from triton.language.extra.cuda import libdevice as d  # type: ignore[no-redef]


@triton.jit
def divide(x, y):
    """x / y, rounded once."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


@triton.jit
def reciprocal(x):
    return divide(tl.full((), 1, x.dtype), x)


@triton.jit
def sqrt(x):
    """The square root, rounded once."""
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def rsqrt(x):
    return d.rsqrt(x)


@triton.jit
def sign(x):
    """1, 0 or -1; of NaN 0, as in eager."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def sign_int(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def sigmoid(x):
    one = tl.full((), 1, x.dtype)
    return divide(one, one + d.exp(-x))


@triton.jit
def gelu(x):
    """x times the normal distribution's integral up to x."""
    return x * 0.5 * (1.0 + d.erf(x * 0.7071067811865476))


@triton.jit
def gelu_slope(x):
    """The derivative of gelu."""
    below = 0.5 * (1.0 + d.erf(x * 0.7071067811865476))
    return below + x * (d.exp(x * x * -0.5) * 0.3989422804014327)


@triton.jit
def normal_tail(z):
    """The normal distribution up to -z, z >= 0: within 2^-17 of itself up to 6.5, and then small. The power of two of a
    of two of a polynomial (fitted on Chebyshev nodes, 1.1e-5 of its logarithm at worst)."""
    p = tl.fma(z, -1.76984737e-06, 6.02403488e-05)
    p = tl.fma(p, z, -9.19429847e-04)
    p = tl.fma(p, z, 8.46320244e-03)
    p = tl.fma(p, z, -5.38683020e-02)
    p = tl.fma(p, z, -4.58553402e-01)
    p = tl.fma(p, z, -1.15121899)
    return tl.exp2(tl.fma(p, z, -9.99997157e-01))


@triton.jit
def gelu_of_halves(x):
    tail = normal_tail(tl.abs(x))
    return x * tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def gelu_slope_of_halves(x):
    tail = normal_tail(tl.abs(x))
    below = tl.where(x < 0, tail, 1.0 - tail)
    return tl.fma(x, tl.exp2(x * x * -0.7213475204444817) * 0.3989422804014327, below)


@triton.jit
def remainder(a, b):
    """The rest of a / b with b's sign."""
    rest = d.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@triton.jit
def floor_div(a, b):
    """The quotient rounded down, as Python rounds it."""
    rest = d.fmod(a, b)
    quotient = divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    down = d.floor(quotient)
    down = tl.where(quotient - down > 0.5, down + 1, down)
    whole = divide(a, b)
    result = tl.where(quotient == 0, d.copysign(tl.zeros_like(quotient), whole), down)
    return tl.where(b == 0, whole, result)


@triton.jit
def floordiv_int(a, b):
    """The quotient of integers rounded down; 0 where the divisor is 0."""
    by = tl.where(b == 0, b + 1, b)
    quotient = a // by
    rest = a - quotient * by
    return tl.where((rest != 0) & ((rest < 0) != (by < 0)), quotient - 1, quotient)


@triton.jit
def mod_int(a, b):
    """The rest of integers with the divisor's sign."""
    by = tl.where(b == 0, b + 1, b)
    rest = a % by
    return tl.where((rest != 0) & ((rest < 0) != (by < 0)), rest + by, rest)


@triton.jit
def pow_int(base, exponent):
    """Wraps as eager does; a negative exponent leaves 1/base rounded towards zero."""
    result = tl.full((), 1, base.dtype) + base * 0
    power, left = base, exponent
    for _ in range(64):
        result = tl.where((left > 0) & ((left & 1) != 0), result * power, result)
        power = power * power
        left = tl.where(left > 0, left >> 1, left)
    minus = tl.where((exponent & 1) != 0, base, base * base)
    unit = (base == 1) | (base == -1)
    return tl.where(exponent < 0, tl.where(unit, minus, tl.zeros_like(base)), result)


@triton.jit
def shl(a, b):
    """0 where all bits are shifted out."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    fits = (b >= 0) & (b < width)
    return tl.where(fits, a << tl.where(fits, b, b * 0), a * 0)


@triton.jit
def shr(a, b):
    """The sign where all bits are shifted out."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    fits = (b >= 0) & (b < width)
    return a >> tl.where(fits, b, b * 0 + (width - 1))


# ---- what reductions and scans join values with ----


@triton.jit
def joined_sum(a, b):
    return a + b


@triton.jit
def joined_prod(a, b):
    return a * b


@triton.jit
def joined_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def joined_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def joined_max_int(a, b):
    return tl.maximum(a, b)


@triton.jit
def joined_min_int(a, b):
    return tl.minimum(a, b)


@triton.jit
def joined_logaddexp(a, b):
    """log(exp(a) + exp(b))."""
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    same = (a == b) & (tl.abs(a) == float("inf"))
    return tl.where(same, a, high + d.log1p(d.exp(low - high)))


@triton.jit
def joined_powers(part, peak, value):
    """A sum of powers relative to `peak`, relative to the greater of it and `value`, with that of `value`: with one
    power, as one of the two is 1. Beside an infinite peak it is scaled by none that is a number, and so is NaN."""
    ahead = value - peak
    return _joined(part, value, ahead, d.exp(-tl.abs(ahead)))


@triton.jit
def joined_powers_of_halves(part, peak, value):
    ahead = value - peak
    return _joined(part, value, ahead, tl.exp(-tl.abs(ahead)))


@triton.jit
def _joined(part, value, ahead, power):
    joined = tl.where(ahead > 0, part * power + 1, part + power)
    return tl.where(value == float("-inf"), part, joined)
