"""What Python computes of sizes that are symbols: factors and sizes that the host function computes at each call."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Number = int | float

FUNCTIONS: dict[str, Callable[[int], Number]] = {
    "round": lambda n: round(n / 2),
    "round_of_a_product": lambda n: round(n * 1.3 + 0.2),
    "abs": lambda n: abs(n - 9),
    "max": lambda n: max(n, 6, n * 2 - 9),
    "min": lambda n: min(n, 6),
    "pow": lambda n: n**2,
    "root": lambda n: n**0.5,
    "int": lambda n: int(n / 2),
    "float": lambda n: float(n) / 3,
    "bool": lambda n: int(bool(n > 6)),
    "floor": lambda n: math.floor(n * 0.7),
    "ceil": lambda n: math.ceil(n * 0.7),
    "trunc": lambda n: math.trunc(n * 0.7),
    "sqrt": lambda n: math.sqrt(n),
    "log2": lambda n: math.log2(n),
    "tanh": lambda n: math.tanh(n),
    "shift": lambda n: (n << 2) + (n >> 1),
    "bits": lambda n: (n & 3) + (n | 3) + (n ^ 3),
    "negative_floor_division": lambda n: -n // 3 + 9,
    "negative_remainder": lambda n: -n % 3,
    "float_remainder": lambda n: n % 2.5,
    "is_integer": lambda n: int((n / 2).is_integer()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_of_a_size_is_pythons(name: str) -> None:
    number = FUNCTIONS[name]

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        n = number(x.shape[0])
        return x * n, x.new_ones(int(n) + 2) * n

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay", dynamic=True, fullgraph=True, options={"fallback": "error"})
    for size in (7, 5, 8):
        x = torch.arange(1.0, size + 1)
        for got, wanted in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(got, wanted)
