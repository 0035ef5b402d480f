"""The gradient of as_strided_scatter is that of the elements that it overwrites, and 0 for those that it keeps.

Kind: wrong result.
Backends: eager. Seen with torch 2.11.0 and 2.13.0 (CPU, Python 3.11); `torch.autograd.gradcheck` fails on it.
slice_scatter, which writes the same elements, is right.
"""

import sys

import torch


def gradient(written: torch.Tensor, x: torch.Tensor) -> list[float]:
    written.sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def main() -> int:
    x, other = (torch.zeros(6, requires_grad=True) for _ in range(2))
    found = gradient(x.as_strided_scatter(torch.ones(2), (2,), (4,), 1), x)
    expected = gradient(other.slice_scatter(torch.ones(2), 0, 1, 6, 4), other)
    print(f"torch {torch.__version__}: {found}, by slice_scatter {expected}")
    return found == expected


if __name__ == "__main__":
    sys.exit(main())
