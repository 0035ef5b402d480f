"""A tensor made of a list with a symbolic integer keeps its lowest 32 bits; eager's index error is lost.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
`torch.tensor([2**40, 0])` is right; with a SymInt of 2**40 in the list it is `[0, 0]`.
"""

import sys

import torch


def f(x: torch.Tensor, n: int) -> torch.Tensor:
    return x[[n, 0]] * 2


def main() -> int:
    x = torch.arange(5.0)
    compiled = torch.compile(f, backend="aot_eager", dynamic=True)(x, 1 << 40)
    try:
        f(x, 1 << 40)
    except IndexError as error:
        print(f"torch {torch.__version__}: eager {error}, compiled {compiled.tolist()}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
