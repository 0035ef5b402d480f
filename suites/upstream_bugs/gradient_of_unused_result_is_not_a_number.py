"""The gradient is NaN where a result through which nothing flows back was multiplied by an infinity.

Kind: wrong result.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). The missing gradient counts as zeros, and zero
times an infinity is not a number; eager does not compute what follows from the unused result.
"""

import sys

import torch


def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * w, x * 2


def gradient(function: object) -> list[float]:
    x = torch.ones(2, requires_grad=True)
    _, used = function(x, torch.tensor([1.0, float("inf")]))  # type: ignore[operator]
    used.sum().backward()
    return x.grad.tolist()  # type: ignore[union-attr, no-any-return]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, compiled = gradient(f), gradient(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: {compiled}, eager {eager}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
