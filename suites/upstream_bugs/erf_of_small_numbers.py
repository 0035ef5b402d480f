"""`erf` of a small number is 0: the vector code takes a polynomial times `exp` from 1.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.erf()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((16,), 1e-9)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager > 0, compiled > 0) else 1


if __name__ == "__main__":
    sys.exit(main())
