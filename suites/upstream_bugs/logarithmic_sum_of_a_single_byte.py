"""`logcumsumexp` of a single byte is the byte itself, where eager has no kernel for bytes.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Reported as pytorch/pytorch#197807.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.logcumsumexp(x, 0)


def main() -> int:
    x = torch.tensor(3, dtype=torch.uint8)
    try:
        f(x)
    except NotImplementedError as error:
        print(f"torch {torch.__version__}: eager raises {type(error).__name__}")
    else:
        return 1
    print("inductor gives", torch.compile(f)(x))
    return 0


if __name__ == "__main__":
    sys.exit(main())
