"""The gradient of real numbers that `diagonal_scatter` puts into complex ones is refused; written in place it is real.

Kind: error.
Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11). The formula of `linalg.eigh` scatters so where it is
recorded with subclasses of tensors, so second gradients of complex matrices fail there.
"""

import sys

import torch


def main() -> int:
    x, g = torch.zeros(3, 3, dtype=torch.complex64), torch.ones(3, requires_grad=True)
    written = x.clone()
    written.diagonal().copy_(g)
    (expected,) = torch.autograd.grad(written.abs().sum(), g)
    try:
        torch.autograd.grad(torch.diagonal_scatter(x, g).abs().sum(), g)
    except RuntimeError as error:
        print(f"torch {torch.__version__}: {expected.dtype} by a copy; scattered: {str(error).splitlines()[0][:90]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
