"""`addcmul` multiplies its two tensors first, and the product overflows. Eager multiplies by `value` first.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(x, x, x, value=1e-30)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((2,), 1e20)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.allclose(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
