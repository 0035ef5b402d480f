"""A negative number to the power of a tensor is the negative of its magnitude's power, also without any compiler.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11). The code of the graph says `-2.5 ** x`. Compilers that run
the graph's nodes are right.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return (-2.5) ** x


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    x = torch.tensor([2.0])
    ours, eagers = torch.compile(f, backend=backend)(x).item(), f(x).item()
    print(f"torch {torch.__version__}, {backend}: {ours}, eager {eagers}")
    return int(ours == eagers)


if __name__ == "__main__":
    sys.exit(main())
