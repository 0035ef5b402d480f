"""`any` of bytes is a bool, where eager's is a byte, as `all` of them is.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.any()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.ones(3, dtype=torch.uint8)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager.dtype}, compiled {compiled.dtype}")
    return 0 if eager.dtype != compiled.dtype else 1


if __name__ == "__main__":
    sys.exit(main())
