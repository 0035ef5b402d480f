"""A Python float that changes and that an operator fixes is 0.0 in the graph where it is -0.0.

Dynamo's graph reads the float and is right. Whoever compiles the graph sees the number that its symbol was replaced
by, which has no sign at zero; the guard holds for both zeros.

Kind: wrong result. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, number: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linalg.vector_norm(x, number), x * number


def main() -> int:
    x = torch.ones(3)
    compiled = torch.compile(f, backend="aot_eager")
    compiled(x, 3.0)
    signs = [bool(torch.signbit(function(x, -0.0)[1]).all()) for function in (f, compiled)]
    print(f"torch {torch.__version__}: x * -0.0 is negative: eager {signs[0]}, compiled {signs[1]}")
    return int(signs[0] == signs[1])


if __name__ == "__main__":
    sys.exit(main())
