"""`acosh` of a large number is infinite: its square overflows.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The vector code takes a logarithm of `x + sqrt(x * x - 1)`. Of a number alone the result is right.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.acosh()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((16,), 1e20)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.allclose(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
