"""Behind `as_strided_` the size and the strides that a program asks for are those from before.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Reported as pytorch/pytorch#185888.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x.as_strided_((2, 2), (2, 1))
    return x + x.stride(0)


def main() -> int:
    x = torch.zeros(4)
    eager, compiled = f(x), torch.compile(f, backend="eager")(x)
    print(f"torch {torch.__version__}: 0 and the stride are {eager.max().item()}; Dynamo: {compiled.max().item()}")
    return 0 if eager.max() != compiled.max() else 1


if __name__ == "__main__":
    sys.exit(main())
