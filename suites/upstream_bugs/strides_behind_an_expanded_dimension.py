"""What is computed of a tensor with a new dimension of size 1 in front of one that is expanded has other strides.

Kind: wrong form. Backends: inductor. Seen with torch 2.11.0 and 2.13.0 (CPU, Python 3.11).
`expand` gives such a dimension the stride 0. A fake tensor that has a shape environment gives it another one, by which
the order of the dimensions of a result is chosen, and Inductor lays the result out so: (1, 1, 3) for (12, 4, 1).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.expand(1, 3, 4) + 1


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.arange(16.0).as_strided((1, 4), (4, 4))
    eager, compiled = f(x).stride(), torch.compile(f, backend=backend)(x).stride()
    print(f"torch {torch.__version__}, {backend}: strides {compiled}, eager {eager}")
    return int(compiled == eager)


if __name__ == "__main__":
    sys.exit(main())
