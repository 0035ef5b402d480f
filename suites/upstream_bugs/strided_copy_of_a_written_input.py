"""A copy by strides of an input with gaps, behind a write of it, reads other elements: the graph's value has no gaps.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Reported as pytorch/pytorch#133512.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return torch.as_strided_copy(x, (3,), (2,))


def main() -> int:
    eager = f(torch.arange(10)[::2]).tolist()
    compiled = torch.compile(f, backend="aot_eager")(torch.arange(10)[::2]).tolist()
    print(f"torch {torch.__version__}: eager {eager}; aot_eager {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
