"""A program whose backward would fail, and is not run, fails when it is called.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
`exp` saves its result, which is then written. Eager returns the values and raises only in a backward; compiled, the
forward raises BackendCompilerFailed.
"""

import sys

import torch


def f(w: torch.Tensor) -> torch.Tensor:
    y = w.exp()
    z = y * 2
    y.add_(1)
    return z


def main() -> int:
    w = torch.ones(3, requires_grad=True)
    eager, told = f(w).tolist(), ""
    try:
        told = str(torch.compile(f, backend="aot_eager")(w).tolist())
    except Exception as error:
        told = type(error).__name__
    print(f"torch {torch.__version__}: eager {eager}, compiled {told}")
    return 0 if told != str(eager) else 1


if __name__ == "__main__":
    sys.exit(main())
