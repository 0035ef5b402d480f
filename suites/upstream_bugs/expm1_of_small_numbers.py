"""`expm1` of a small number is 0: the vector code takes 1 from `exp`.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
`elu`, `celu` and `selu` are computed with it. Known as pytorch/pytorch#189803.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.expm1()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((16,), 1e-8)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager > 0, compiled > 0) else 1


if __name__ == "__main__":
    sys.exit(main())
