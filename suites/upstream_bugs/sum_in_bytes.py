"""`sum(dtype=torch.int8)` is another number modulo 256.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU with AVX2, Python 3.11). Shows only with AVX2.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dtype=torch.int8)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((40,), 3, dtype=torch.int8)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
