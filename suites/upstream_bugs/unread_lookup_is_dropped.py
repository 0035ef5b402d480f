"""A lookup out of range that nobody reads raises in eager. Dynamo leaves it out of its graph.

Kind: missing error. Backends: eager behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x[at]
    return x + 1


def raised(function: Callable[..., object], *args: torch.Tensor) -> str:
    try:
        function(*args)
    except IndexError as error:
        return type(error).__name__
    return "nothing"


def main() -> int:
    args = torch.arange(3.0), torch.tensor([7])
    plain, compiled = raised(f, *args), raised(torch.compile(f, backend="eager"), *args)
    print(f"torch {torch.__version__}: eager raises {plain}, Dynamo {compiled}")
    return int(plain == compiled)


if __name__ == "__main__":
    sys.exit(main())
