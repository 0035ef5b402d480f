"""A product of batches of bytes has 64-bit integers, where eager's has bytes.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Known as pytorch/pytorch#191308.
"""

import sys

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    a, b = torch.ones(1, 1, 2, dtype=torch.int8), torch.ones(1, 2, 2, dtype=torch.int8)
    eager, compiled = f(a, b), torch.compile(f, backend=backend)(a, b)
    print(f"torch {torch.__version__}, {backend}: eager {eager.dtype}, compiled {compiled.dtype}")
    return 0 if eager.dtype != compiled.dtype else 1


if __name__ == "__main__":
    sys.exit(main())
