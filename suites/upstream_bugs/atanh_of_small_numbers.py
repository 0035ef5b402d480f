"""`atanh` of a small number is 0, and of -0.0 it is 0.0.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
It is computed as half the logarithm of `(1 + x) / (1 - x)`, which is 1.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.atanh()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.tensor([1e-9, -1e-9]).repeat(16)  # of two alone it shows with AVX2, and not with AVX-512
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager > 0, compiled > 0) else 1


if __name__ == "__main__":
    sys.exit(main())
