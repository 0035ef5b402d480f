"""A tensor with history and a view of it are swapped and returned: compiling fails with an AssertionError.

Kind: error. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> Any:
    old = a.clone()
    a.copy_(b)
    b.copy_(old)
    return b, a


def show(function: Callable[..., Any]) -> Any:
    base = torch.ones(2).requires_grad_().clone()
    return [result.tolist() for result in function(base, base[:])]


def outcome(function: Callable[..., Any]) -> Any:
    try:
        return show(function)
    except Exception as error:
        return type(error).__name__


def main() -> int:
    want, got = outcome(f), outcome(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {want}, compiled {got}")
    return 0 if want != got else 1


if __name__ == "__main__":
    sys.exit(main())
