"""The gradient of softshrink at NaN is 0 within a vector and the tangent in the rest of a row.

Kind: wrong result. Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11).
"""

import sys

import torch


def main() -> int:
    x = torch.full((37,), float("nan"), requires_grad=True)
    torch.nn.functional.softshrink(x).sum().backward()
    assert x.grad is not None
    passed = int(x.grad.count_nonzero())
    print(f"torch {torch.__version__}: at {passed} of {len(x)} elements the gradient is passed on")
    return int(passed in (0, len(x)))


if __name__ == "__main__":
    sys.exit(main())
