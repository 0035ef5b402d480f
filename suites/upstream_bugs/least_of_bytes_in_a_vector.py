"""`amin` of bytes is at most the lanes that no byte fills: the least of 17 times 127 is 1.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Known as pytorch/pytorch#191499, where it is 0 for short rows.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.amin(1)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((1, 17), 127, dtype=torch.int8)
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
