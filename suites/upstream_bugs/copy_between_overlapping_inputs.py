"""A copy between partly overlapping inputs is refused by eager and done by the compiled function.

Kind: missing error. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.copy_(b)
    return a


def show(function: Callable[..., Any]) -> Any:
    base = torch.arange(4.0)
    return function(base[:3], base[1:]).tolist()


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
