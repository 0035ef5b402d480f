"""The number after 1.0 in float16 is 1.0: it is sought in float32, and rounded.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(x, y)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, y = torch.ones(2, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)
    eager, compiled = f(x, y), torch.compile(f, backend=backend)(x, y)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
