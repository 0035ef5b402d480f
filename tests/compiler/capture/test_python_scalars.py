"""Python numbers of each type as an argument of operators that take one, forward and backward, as eager has them.

One program an operator and dtype has every number that eager takes there. By default each operator runs in one dtype,
chosen by its name; ASSAY_EVERY_DTYPE=1 runs all.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

NUMBERS: tuple[Any, ...] = (
    *(True, False, 3, -2, 0, 2**31, -(2**31) - 1, 2**53 + 1, 2**62),
    *(1.5, -0.0, 1e-40, 1e300, math.inf, -math.inf, math.nan, 2j, 1 - 1j),
)
OPERATORS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "add": lambda x, n: x + n,
    "radd": lambda x, n: n + x,
    "sub": lambda x, n: x - n,
    "rsub": lambda x, n: n - x,
    "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n,
    "rdiv": lambda x, n: n / x,
    "floor_divide": lambda x, n: torch.floor_divide(x, n),
    "remainder": lambda x, n: x % n,
    "fmod": lambda x, n: torch.fmod(x, n),
    "pow": lambda x, n: x**n,
    "rpow": lambda x, n: n**x,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "value": lambda x, n: torch.addcmul(x, x, x, value=n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "clamp": lambda x, n: x.clamp(min=n),
    "equal": lambda x, n: x == n,
    "less": lambda x, n: x < n,
    "where": lambda x, n: torch.where(x == x, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x == x, n),
    "full_like": lambda x, n: torch.full_like(x, n) + x,
    "threshold": lambda x, n: F.threshold(x, 0, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "in_place": lambda x, n: (x * 1).mul_(n),
    "xor": lambda x, n: x ^ n,
}
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.bfloat16, torch.int8)
EVERY = os.environ.get("ASSAY_EVERY_DTYPE", "0") != "0"


def dtypes_of(name: str) -> tuple[torch.dtype, ...]:
    chosen = zlib.crc32(name.encode()) % len(DTYPES)
    return DTYPES if EVERY else (DTYPES[chosen],)


def made(dtype: torch.dtype) -> Tensor:
    x = torch.tensor([[1.0, 2.0, -3.0], [5.0, -1.0, 4.0]]).to(dtype)
    return x.requires_grad_() if dtype.is_floating_point or dtype.is_complex else x


def outcome(function: Callable[[Tensor], tuple[Tensor, ...]], dtype: torch.dtype) -> list[Tensor]:
    """The results, and the gradient of all that have one."""
    x = made(dtype)
    found = list(function(x))
    ends = [one for one in found if one.requires_grad]
    slopes = torch.autograd.grad(ends, [x], [torch.ones_like(one) for one in ends]) if ends else ()
    return [*(one.detach() for one in found), *slopes]


KNOWN = {
    ("masked_fill", torch.bool): (2j, 1 - 1j),  # Dynamo's own fake refuses what eager takes
}
"""Numbers that torch's front end takes otherwise, behind every backend."""


def takes(operator: Callable[[Tensor, Any], Tensor], number: object, dtype: torch.dtype) -> bool:
    try:
        outcome(lambda x: (operator(x, number),), dtype)
    except (RuntimeError, TypeError, ZeroDivisionError, OverflowError, NotImplementedError):
        return False
    return True


CASES = [pytest.param(n, d, id=f"{n}-{str(d).removeprefix('torch.')}") for n in OPERATORS for d in dtypes_of(n)]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operators_take_python_numbers_as_eager_does(name: str, dtype: torch.dtype) -> None:
    operator = OPERATORS[name]
    known = {(type(number), number) for number in KNOWN.get((name, dtype), ())}
    left = [number for number in NUMBERS if (type(number), number) not in known]
    numbers = [number for number in left if takes(operator, number, dtype)]
    if not numbers:
        pytest.skip("eager takes none of them")

    def every(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(operator(x, number) for number in numbers)

    ours, eager = outcome(torch.compile(every, backend="assay"), dtype), outcome(every, dtype)
    for number, mine, theirs in zip([*numbers, "gradient"], ours, eager, strict=False):
        assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride()), number
        bounds = {"rtol": 2**-7, "atol": 2**-7} if dtype is torch.bfloat16 else {}  # eager rounds between operators
        torch.testing.assert_close(mine, theirs, equal_nan=True, **bounds, msg=lambda text, n=number: f"{n}: {text}")
