"""Functions that generated Triton kernels call beside those of CUDA's device library, `d`.

Where Triton interprets kernels, `d` is `interpreted.py`, which has the same names.
"""

from __future__ import annotations

import triton
import triton.language as tl

if triton.knobs.runtime.interpret:
    from assay.compiler.codegen.triton import interpreted as d
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
def rounded(x):
    """An integer as a float32. One that is rounded again must be so twice, where Triton makes one conversion of two:
    it does not see through a choice."""
    return tl.where(x == 0, 0.0, x.to(tl.float32))


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
def hidden(x):
    """The number itself, of which no compiler knows how large it is: programs are launched along one dimension."""
    return x + (tl.num_programs(1) - 1) * 32768


@triton.jit
def pow_int(base, exponent):
    """Wraps as eager does; a negative exponent leaves 1/base rounded towards zero."""
    base, exponent = tl.broadcast(base, exponent)  # what a loop carries keeps its shape
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
def scanned_max(a, b):
    """The greater of what came so far and what comes next; of two that are equal, zeros of either sign, the later."""
    return tl.where(a != a, a, tl.where(a > b, a, b))


@triton.jit
def scanned_min(a, b):
    return tl.where(a != a, a, tl.where(a < b, a, b))


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


@triton.jit
def pivot(value):
    """A value that others may be taken relative to: 0 for one that is none, or so large that others less it are not."""
    return tl.where(tl.abs(value) < 1e30, value, 0)


@triton.jit
def counts_of_lanes(numel, lanes: tl.constexpr):
    """How many of `numel` values each of so many lanes meets, where they take them in turns."""
    return (numel - tl.arange(0, lanes)[None, :] + (lanes - 1)) // lanes


@triton.jit
def joined_squares(part, total, count, value):
    """The squares of the distances of `count` values from their mean, `part`, where they sum to `total`, with one value
    more. (E. A. Youngs and E. M. Cramer, Technometrics 13, 1971.)"""
    ahead = value - total * (1 / tl.maximum(count, 1))
    return part + ahead * ahead * (count / (count + 1))


@triton.jit
def squares_from(mean, part, total, count):
    """The squares of the distances of values from `mean`, by those from their own mean."""
    ahead = total / tl.maximum(count, 1) - mean
    return part + tl.where(count > 0, count * ahead * ahead, 0)


@triton.jit
def words(seed, call, thread):
    """The four words of a call of Philox with ten rounds, in their order as int32: less 2^31."""
    a, b, c, d = call.to(tl.uint32), (call >> 32).to(tl.uint32), thread.to(tl.uint32), tl.full((), 0, tl.uint32)
    key, other = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        left, right = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57  # an instruction each
        a, c = (right >> 32).to(tl.uint32) ^ b ^ key, (left >> 32).to(tl.uint32) ^ d ^ other
        b, d = right.to(tl.uint32), left.to(tl.uint32)
        key, other = key + 0x9E3779B9, other + 0xBB67AE85
    return ordered(a), ordered(b), ordered(c), ordered(d)


@triton.jit
def ordered(word):
    return word.to(tl.int32, bitcast=True) ^ -2147483648


@triton.jit
def philox(seed, start, position, threads: tl.constexpr, width: tl.constexpr):
    """The words of elements, as `compiler/runtime/philox.py` says."""
    at = unsigned(position)
    group = at // width
    turn = group // threads
    drawn = turn * (1 if width == 1 else max(width, 4)) + at % width
    a, b, c, d = words(seed, start + drawn // 4, group % threads)
    lane = drawn % 4
    return tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))


@triton.jit
def philox_of_fours(seed, start, position, threads: tl.constexpr, width: tl.constexpr):
    """The same where each four neighbours along the last of two axes are those of one call."""
    pairs, _ = tl.split(tl.reshape(position, [position.shape[0], position.shape[1] // 4, 2, 2]))
    first, _ = tl.split(pairs)
    a, b, c, d = call_of(seed, start, first, threads, width)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [position.shape[0], position.shape[1]])


@triton.jit
def philox_of_eights(seed, start, position, threads: tl.constexpr, width: tl.constexpr):
    """The same where each eight neighbours are those of two calls, so that a thread has eight in a row."""
    fours, _ = tl.split(tl.reshape(position, [position.shape[0], position.shape[1] // 8, 2, 2, 2]))
    pairs, _ = tl.split(fours)
    first, _ = tl.split(pairs)
    a, b, c, d = call_of(seed, start, first, threads, width)
    e, f, g, h = call_of(seed, start, first + 4, threads, width)
    even, odd = tl.join(tl.join(a, e), tl.join(c, g)), tl.join(tl.join(b, f), tl.join(d, h))
    return tl.reshape(tl.join(even, odd), [position.shape[0], position.shape[1]])


@triton.jit
def call_of(seed, start, position, threads: tl.constexpr, width: tl.constexpr):
    """The words of four elements of which the first is at a position."""
    at = unsigned(position)
    group = at // width
    turn = group // threads
    return words(seed, start + (turn * (width // 4) + at % width // 4), group % threads)


@triton.jit
def unsigned(position):
    return position.to(tl.uint32) if position.dtype == tl.int32 else position.to(tl.uint64)


if triton.knobs.runtime.interpret:

    @triton.jit
    def exp2_of_weights(x):
        return d.exp2(x)
else:

    @triton.jit
    def exp2_of_weights(x):
        """2^x by the device's own instruction, in which what is less than the least normal number is 0."""
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
