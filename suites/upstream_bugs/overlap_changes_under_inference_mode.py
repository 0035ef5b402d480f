"""Overlapping views written under inference_mode; a second call of other sizes gives wrong values.

Kind: wrong result. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.no_grad():
        a.mul_(2)
    return a * b


def show(function: Callable[..., Any]) -> Any:
    with torch.inference_mode():
        first = torch.ones(6, 4).requires_grad_()
        function(first[:5], first[1:])
        second = torch.ones(8, 4).requires_grad_()
        return function(second[:5], second[-5:]).tolist()


def main() -> int:
    want, got = show(f), show(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {want}, compiled {got}")
    return 0 if want != got else 1


if __name__ == "__main__":
    sys.exit(main())
