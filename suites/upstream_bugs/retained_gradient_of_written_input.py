"""`retain_grad` on an input that the function writes in place: its gradient is None.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager keeps the gradient of the value that the input has after the call.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sin()


def gradient(function: object) -> torch.Tensor | None:
    x = torch.ones(3, requires_grad=True).clone()
    x.retain_grad()
    function(x).sum().backward()  # type: ignore[operator]
    return x.grad


def main() -> int:
    eager, compiled = gradient(f), gradient(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager is not None and compiled is None else 1


if __name__ == "__main__":
    sys.exit(main())
