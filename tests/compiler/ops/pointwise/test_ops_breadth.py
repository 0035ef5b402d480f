"""Rules of losses, activations and special functions on the awkward values, all of a dtype in one compiled graph.

A special result (NaN, an infinity) is right where eager's, or that of float64, is the same. Any other is right within
twice eager's own distance from float64, or a few roundings of its dtype.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from assay.compiler.entry.dynamo import compile_fx_inner
from assay.compiler.journal import reset, totals
from tests.lowering import traced

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
Function = Callable[..., torch.Tensor]

ONE: dict[str, Function] = {
    "celu": lambda x: F.celu(x, 1.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "logsigmoid": F.logsigmoid,
    "logit": lambda x: aten.logit(x),
    "logit eps": lambda x: aten.logit(x, 0.2),
    "sinc": torch.sinc,
    "deg2rad": torch.deg2rad,
    "rad2deg": torch.rad2deg,
    "angle": torch.angle,
    "entr": torch.special.entr,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "round 2": lambda x: torch.round(x, decimals=2),
    "round -1": lambda x: torch.round(x, decimals=-1),
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": F.elu,
    "frac": torch.frac,
    "log_ndtr": torch.special.log_ndtr,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
    "polygamma 0": lambda x: torch.polygamma(0, x.abs()),
    "polygamma 3": lambda x: torch.polygamma(3, x.abs()),
    "mvlgamma": lambda x: torch.mvlgamma(x.abs(), 3),
}
TWO: dict[str, Function] = {
    "hypot": torch.hypot,
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "hardshrink_backward": lambda x, y: aten.hardshrink_backward(x, y, 0.5),
    "softshrink_backward": lambda x, y: aten.softshrink_backward(x, y, 0.5),
    "logit_backward": lambda x, y: aten.logit_backward(x, y),
    "logit_backward eps": lambda x, y: aten.logit_backward(x, y, 0.2),
    "log_sigmoid_backward": lambda x, y: aten.log_sigmoid_backward(x, y, aten.log_sigmoid_forward(y)[1]),
    "prelu": lambda x, y: aten._prelu_kernel(x, y),
    "huber": lambda x, y: aten.huber_loss(x, y, 0, 0.7),
    "smooth_l1": lambda x, y: aten.smooth_l1_loss(x, y, 0, 0.7),
    "huber_backward": lambda x, y: aten.huber_loss_backward(x, x, y, 0, 0.7),
    "smooth_l1_backward": lambda x, y: aten.smooth_l1_loss_backward(x, x, y, 0, 0.7),
}
INTEGER_ONE: dict[str, Function] = {
    "pow 2": lambda x: x**2,
    "pow 5": lambda x: x**5,
    "2 pow": lambda x: aten.pow.Scalar(2, x),
    "trunc": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "floor": lambda x: x // 3,
    "fmod": lambda x: torch.fmod(x, 7),
    "remainder": lambda x: x % 7,
    "signbit": torch.signbit,
    "isposinf": torch.isposinf,
}
INTEGER_TWO: dict[str, Function] = {
    "pow": torch.pow,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "heaviside": torch.heaviside,
}
TO_ZERO = ("logaddexp", "logaddexp2", "polygamma 0")
"""Sums that may be 0, so that errors are judged beside their terms."""

TWO_EAGERS_FOR_NAN = ("hardshrink_backward", "softshrink_backward", "logit_backward eps")
"""Eager's vectorised loop and its tail give 0 and something else for a second operand that is NaN."""


def values(dtype: torch.dtype) -> torch.Tensor:
    """The edges, a line through the middle, and enough for a vector loop and its tail."""
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        middle = [v for v in (-100, -9, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 9, 31, 32, 63, 64) if v >= info.min]
        return torch.tensor([info.min, *middle, info.max], dtype=dtype)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 0.2, 0.8, 0.7]
    return torch.tensor([*special, *torch.linspace(-7, 7, 29).tolist(), 30.0, -30.0, 1000.5, 1e4, -1e4], dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.meshgrid(values(dtype), values(dtype), indexing="ij")
    return first.reshape(-1).contiguous(), second.reshape(-1).contiguous()


def accepted(functions: dict[str, Function], *args: torch.Tensor) -> dict[str, Function]:
    """The functions that eager has for the dtype of the arguments."""
    kept = {}
    for name, function in functions.items():
        try:
            function(*args)
        except (RuntimeError, NotImplementedError):
            continue
        kept[name] = function
    return kept


@functools.cache
def results(dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Of every function: ours, eager's, and what eager gives in float64."""
    one, two = (ONE, TWO) if dtype.is_floating_point else (INTEGER_ONE, INTEGER_TWO)
    x, (a, b) = values(dtype), pairs(dtype)
    one, two = accepted(one, x), accepted(two, a, b)

    def every(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*(f(x) for f in one.values()), *(f(a, b) for f in two.values()))

    reset()
    found = compile_fx_inner(traced(every, x, a, b).module, [x, a, b])([x, a, b])
    assert totals()["fallbacks"] == {}
    eager = every(x, a, b)
    wide = every(*(t.double() for t in (x, a, b))) if dtype.is_floating_point else [None] * len(eager)
    return dict(zip([*one, *two], zip(found, eager, wide, strict=True), strict=True))


def worst(*values: torch.Tensor) -> tuple[float, float]:
    """Our largest error in roundings of the last of the values, and eager's."""
    ours, theirs, exact, scale = values
    info = torch.finfo(ours.dtype)
    plain = exact.isfinite() & theirs.isfinite() & ours.isfinite()
    a, b, c = (t[plain].double() for t in (ours, theirs, exact))
    unit = info.eps * torch.maximum(c.abs(), scale[plain].abs()).clamp(min=info.tiny)
    return float(((a - c).abs() / unit).max()), float(((b - c).abs() / unit).max())


CASES = [
    *((name, dtype) for dtype in FLOATS for name in (*ONE, *TWO)),
    *((name, dtype) for dtype in INTEGERS for name in (*INTEGER_ONE, *INTEGER_TWO)),
]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_rule_as_eager(name: str, dtype: torch.dtype) -> None:
    if name not in results(dtype):
        pytest.skip("eager rejects it")
    ours, theirs, exact = results(dtype)[name]
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    if exact is None or not theirs.dtype.is_floating_point:
        different = (ours != theirs).nonzero().flatten()[:5]
        assert different.numel() == 0, (different.tolist(), ours[different], theirs[different])
        return
    if name in TWO_EAGERS_FOR_NAN:
        certain = ~pairs(dtype)[1].isnan()
        ours, theirs, exact = ours[certain], theirs[certain], exact[certain]
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        special = test(ours)
        different = ((special != test(theirs)) & (special != test(exact.to(ours.dtype)))).nonzero().flatten()[:8]
        assert different.numel() == 0, (test.__name__, different.tolist(), ours[different], theirs[different])
    scale = torch.ones_like(exact) if name in TO_ZERO else exact
    error, eagers = worst(ours, theirs, exact, scale)
    assert error <= max(4.0, 2 * eagers), f"{error:.1f} ulp, eager {eagers:.1f}"


# ---- list operators --------------------------------------------------------------------------------------------------


def steps(*lists: list[torch.Tensor]) -> list[torch.Tensor]:
    parameters, gradients, means, squares = lists
    torch._foreach_lerp_(means, gradients, 0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, 0.3)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(parameters, means, roots, -0.01)
    torch._foreach_sub_(parameters, gradients, alpha=0.1)
    torch._foreach_copy_(gradients, means)
    powers = torch._foreach_pow(2.0, means)
    torch._foreach_maximum_(squares, 1e-4)
    return [*torch._foreach_norm(gradients, 2), *powers, *torch._foreach_clamp_min(parameters, [0.1, 0.2, 0.3])]


def test_list_operators_are_kernels() -> None:
    def lists() -> list[list[torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        return [[torch.rand(shape, generator=generator) for shape in ((7, 5), (3,), ())] for _ in range(4)]

    ours, theirs = lists(), lists()
    reset()
    found = torch.compile(steps, backend="assay")(*ours)
    assert not any("foreach" in name for name in totals()["fallbacks"])  # type: ignore[attr-defined]
    expected = steps(*theirs)
    for mine, eager in zip([*itertools.chain(*ours), *found], [*itertools.chain(*theirs), *expected], strict=True):
        torch.testing.assert_close(mine, eager)
