"""Activations at zeros of both signs, infinities, NaN, and where their pieces meet: the values of eager and their
signs, forward and backward. Pieces that are lines give the same bits; the others have a rounding of their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

inf, nan = math.inf, math.nan
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
LIMITS = (-1.0, -0.0, 0.0, inf)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 1e-30, -1e-30, 20.0, 21.0, -20.0, inf, -inf, nan)

ROUNDING = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7), torch.bfloat16: (2**-4, 1e-5)}
"""What eager rounds at each step of a composite, in halves, is rounded once."""
REPEATS = 3
"""More numbers than a vector holds, and a rest."""

Activation = Callable[[Tensor], Tensor]
LINES: dict[str, Activation] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    **{
        f"hardtanh({low}, {high})": lambda x, low=low, high=high: F.hardtanh(x, low, high)  # type: ignore[misc]
        for low, high in itertools.product(LIMITS, LIMITS)
        if low <= high
    },
    **{
        f"clamp({low}, {high})": lambda x, low=low, high=high: x.clamp(low, high)  # type: ignore[misc]
        for low, high in itertools.product((*LIMITS, None), (*LIMITS, None))
        if (low, high) != (None, None)
    },
    **{
        f"{function.__name__}({number})": lambda x, f=function, number=number: f(x, number)  # type: ignore[misc]
        for function in (F.leaky_relu, F.hardshrink)
        for number in (0.0, -0.0, 0.5)
    },
    **{f"softshrink({number})": lambda x, n=number: F.softshrink(x, n) for number in (0.0, 0.5)},  # type: ignore[misc]
    **{
        f"threshold({bound}, {value})": lambda x, b=bound, v=value: F.threshold(x, b, v)  # type: ignore[misc]
        for bound, value in itertools.product((0.0, -0.0, 0.5), (0.0, -0.0))
    },
    "nan_to_num": torch.nan_to_num,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "fmax": lambda x: torch.fmax(x, x.flip(0)),
    "fmin": lambda x: torch.fmin(x, x.flip(0)),
    "abs": torch.abs,
    "sign": torch.sign,
    "heaviside": lambda x: torch.heaviside(x.detach(), x.detach()),
    "copysign": lambda x: torch.copysign(x, x.flip(0)),
    "prelu": lambda x: F.prelu(x, torch.zeros(1, dtype=x.dtype)),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.0),
}
CURVES: dict[str, Activation] = {
    **{f"elu({a})": lambda x, a=a: F.elu(x, a) for a in (1.0, 0.0, -0.0)},  # type: ignore[misc]
    **{f"celu({a})": lambda x, a=a: F.celu(x, a) for a in (1.0, 0.5)},  # type: ignore[misc]
    "selu": F.selu,
    "silu": F.silu,
    "mish": F.mish,
    "gelu": lambda x: F.gelu(x.where(x.isfinite() & (x > -10), 1.0)),  # as `gelu_of_infinity` of upstream's bugs
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "softplus(2, 1)": lambda x: F.softplus(x, 2, 1),
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "glu": lambda x: F.glu(torch.cat([x, x.flip(0)])),
}


def outcome(function: Activation, given: Tensor) -> list[Tensor]:
    """The values, and the gradient of their sum where there is one."""
    x = given.clone().requires_grad_()
    y = function(x)
    return [y.detach(), *(torch.autograd.grad(y.sum(), x) if y.requires_grad else ())]


def check(function: Activation, dtype: torch.dtype, exact: bool) -> None:
    """Eager's vectors, the rest behind them and a number alone disagree in places: an answer of each is eager's."""
    torch._dynamo.reset()
    many = torch.tensor(NUMBERS, dtype=dtype).repeat(REPEATS)
    found = outcome(torch.compile(function, backend="assay", dynamic=False), many)
    vectors = outcome(function, many)
    apart = [
        [outcome(function, many[[n, -1 - n][:length]]) for n in range(len(NUMBERS))]
        for length in ((2,) if exact else (2, 1))
    ]
    for place, ours in enumerate(found):
        firsts = [torch.stack([each[place][0] for each in made]) for made in apart]
        answers = [*vectors[place].unflatten(0, (REPEATS, -1)), *firsts]
        is_eagers = torch.stack([alike(ours.unflatten(0, (REPEATS, -1)), one, exact) for one in answers]).any(0)
        wrong = [(many[n].item(), ours[n].item(), vectors[place][n].item()) for n in (~is_eagers.flatten()).nonzero()]
        assert not wrong, f"of these numbers ours and eager's differ: {wrong}"


def alike(ours: Tensor, eagers: Tensor, exact: bool) -> Tensor:
    """Which elements are equal, or close, with the same sign; the sign of NaN is nobody's."""
    rtol, atol = (0.0, 0.0) if exact else ROUNDING[ours.dtype]
    is_close = torch.isclose(ours, eagers, rtol=rtol, atol=atol, equal_nan=True)
    return is_close & ((ours.signbit() == eagers.signbit()) | eagers.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LINES)
def test_lines_have_eagers_bits(name: str, dtype: torch.dtype) -> None:
    check(LINES[name], dtype, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CURVES)
def test_curves_have_eagers_signs(name: str, dtype: torch.dtype) -> None:
    check(CURVES[name], dtype, exact=False)
