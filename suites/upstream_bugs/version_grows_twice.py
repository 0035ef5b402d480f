"""One write of an input in place counts as two in its version.

Kind: wrong form. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> None:
    x.add_(1)


def growth(function: object) -> int:
    x = torch.zeros(3)
    function(x)  # type: ignore[operator]
    return x._version


def main() -> int:
    eager, compiled = growth(f), growth(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
