"""Floats that change from call to call, in operators of each dtype: `python -m assay.suites.changing_floats`.

    compiled(x, 2.0), compiled(x, inf), compiled(x, 1e300), compiled(x, -0.0), ...  as eager, value or class of error

Eager's kernels refuse a number that their dtype does not hold, whether or not anybody reads the result. Zeros have
signs; a guard takes one for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, nan

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.suites.changing import main

Function = Callable[[Tensor, float], Tensor]
Observed = str | Tensor

NUMBERS = (2.0, 3.5, inf, -inf, 1e30, 1e300, -1e5, 300.0, -0.0, 0.0, nan, 1.0)
DTYPES = (torch.int32, torch.uint8, torch.float16, torch.float32)
RECOMPILES = 64


def _set(x: Tensor, number: float) -> Tensor:
    y = x.clone()
    y[0] = number
    return y


def _first() -> Tensor:
    return torch.zeros(1, dtype=torch.int64)


FORMS: dict[str, Function] = {
    "new_full": lambda x, n: x.new_full((2, 3), n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype) + x[:2],
    "full_like": lambda x, n: torch.full_like(x, n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "tensor": lambda x, n: torch.tensor([n], dtype=x.dtype) + x,
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n, dtype=x.dtype) + x,
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill_": lambda x, n: x.clone().masked_fill_(x > 0, n),
    "index_fill": lambda x, n: x.index_fill(0, _first(), n),
    "scatter": lambda x, n: x.scatter(0, _first(), n),
    "setitem": _set,
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "where": lambda x, n: torch.where(x > 0, n, x),
    "product": lambda x, n: x * n,
    "sum": lambda x, n: x + n,
    "difference": lambda x, n: n - x,
    "quotient": lambda x, n: x / n,
    "inverse": lambda x, n: n / x,
    "power": lambda x, n: x**n,
    "power of a number": lambda x, n: n**x,
    "add_": lambda x, n: x.clone().add_(n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: x.clamp(n),
    "equal": lambda x, n: (x == n).to(x.dtype),
    "less": lambda x, n: (x < n).to(x.dtype),
    "threshold": lambda x, n: F.threshold(x, n, n),
    "hardtanh": lambda x, n: F.hardtanh(x, n, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "celu": lambda x, n: F.celu(x, n),
    "hardshrink": lambda x, n: F.hardshrink(x, abs(n)),
    "softplus": lambda x, n: F.softplus(x, n),
    "logit": lambda x, n: x.logit(n),
    "huber_loss": lambda x, n: F.huber_loss(x, x + 1, delta=abs(n)),
    "nan_to_num": lambda x, n: x.nan_to_num(n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x, x, value=n),
    "maximum": lambda x, n: torch.maximum(x, torch.full_like(x, n)),
    "norm beside a product": lambda x, n: torch.linalg.vector_norm(x.float(), n) * 0 + n * x,
}


def _unread(function: Function) -> Function:
    """The same form, of whose result nobody reads anything."""

    def f(x: Tensor, number: float) -> Tensor:
        function(x, number)
        return x + 1

    return f


@dataclass(frozen=True, slots=True)
class Difference:
    number: float
    wanted: Observed
    got: Observed

    def __str__(self) -> str:
        return f"{self.number}: eager {self.wanted}, compiled {self.got}"


@dataclass(frozen=True, slots=True)
class Run:
    """One form with a dtype, whose result is read or is not."""

    form: str
    dtype: torch.dtype
    is_read: bool

    @property
    def name(self) -> str:
        return f"{self.form}/{str(self.dtype).removeprefix('torch.')}/{'read' if self.is_read else 'unread'}"

    def differences(self) -> list[Difference]:
        """Where the compiled form is not as eager, called with each number in turn, and Dynamo alone is."""
        function = FORMS[self.form] if self.is_read else _unread(FORMS[self.form])
        wanted = [_observed(function, self.dtype, number) for number in NUMBERS]
        got = _called("assay", function, self.dtype)
        triples = [three for three in zip(NUMBERS, wanted, got, strict=True) if not _is_same(*three[1:])]
        if not triples:
            return []
        alone = dict(zip(map(str, NUMBERS), _called("eager", function, self.dtype), strict=True))
        return [Difference(*three) for three in triples if not _is_same(alone[str(three[0])], three[2])]


def _called(backend: str, function: Function, dtype: torch.dtype) -> list[Observed]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=RECOMPILES):
        compiled = torch.compile(function, backend=backend)
        return [_observed(compiled, dtype, number) for number in NUMBERS]


def _observed(function: Function, dtype: torch.dtype, number: float) -> Observed:
    """The result, or the class of the error."""
    try:
        return function(torch.arange(3, dtype=dtype), number)
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _is_same(wanted: Observed, got: Observed) -> bool:
    if isinstance(wanted, str) or isinstance(got, str):
        return isinstance(wanted, str) and isinstance(got, str) and wanted == got
    if (wanted.dtype, wanted.shape, wanted.stride()) != (got.dtype, got.shape, got.stride()):
        return False
    signs = [torch.signbit(value) | value.isnan() for value in (wanted, got)]
    return torch.equal(*signs) and torch.allclose(wanted, got, rtol=1e-3, atol=0, equal_nan=True)


def runs() -> Iterator[Run]:
    for form in FORMS:
        for dtype in DTYPES:
            yield from (Run(form, dtype, is_read) for is_read in (True, False))


if __name__ == "__main__":
    raise SystemExit(main(runs()))
