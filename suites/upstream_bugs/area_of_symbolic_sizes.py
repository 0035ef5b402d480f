"""Interpolation by areas with dynamic sizes does not compile: whether a window is large is asked of symbols.

Kind: error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=1.5, mode="area")


def result(function: object, x: torch.Tensor) -> str:
    try:
        return str(function(x).shape)  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.ones(2, 3, 5, 7)
    eager, compiled = result(f, x), result(torch.compile(f, backend=backend, dynamic=True), x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
