"""What one call saved for backward is written by the next: no error, and another gradient.

Kind: missing error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager raises "modified by an inplace operation", since `sin` saved the input that the second call writes.
"""

import sys

import torch


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.add_(w)
    return x.sin()


def outcome(function: object) -> str:
    w = torch.ones(3, requires_grad=True)
    x = w.clone()
    try:
        (function(x, w) + function(x, w)).sum().backward()  # type: ignore[operator]
    except RuntimeError as error:
        return type(error).__name__
    return str(w.grad)


def main() -> int:
    eager, compiled = outcome(f), outcome(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
