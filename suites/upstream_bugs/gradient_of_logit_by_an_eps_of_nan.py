"""The gradient of `logit` with an `eps` that is no number: zeros where a vector is full, the plain slope elsewhere.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11).
"""

import sys

import torch


def main() -> int:
    x = torch.full((37,), 0.25, requires_grad=True)
    (slopes,) = torch.autograd.grad(x.logit(float("nan")).sum(), x)
    print(f"torch {torch.__version__}: slopes of equal numbers are {sorted(set(slopes.tolist()))}")
    return bool((slopes == slopes[0]).all())


if __name__ == "__main__":
    sys.exit(main())
