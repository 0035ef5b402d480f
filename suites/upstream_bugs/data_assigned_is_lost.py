"""What a function assigns to `.data` of its argument is lost: `aot_function` reads the old numbers.

Kind: wrong result. Backends: aot_function. Seen with torch 2.13.0 (CPU, Python 3.11).
Neither the result nor the argument has the new numbers, and there is no error.
"""

import sys

import torch
from functorch.compile import aot_function, nop


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.data = y
    return x * 2


def main() -> int:
    found = []
    for function in (f, aot_function(f, nop)):
        x, y = torch.ones(2), torch.full((2,), 5.0)
        found.append((function(x, y).tolist(), x.tolist()))
    print(f"torch {torch.__version__}: result and argument: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
