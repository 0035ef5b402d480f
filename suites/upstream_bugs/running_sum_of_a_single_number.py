"""The running sum of a constant of no dimensions does not compile.

Kind: error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
pytorch/pytorch#193265.
"""

import sys
from collections.abc import Callable

import torch


def f() -> torch.Tensor:
    return torch.tensor(5.0).cumsum(0)


def result(function: Callable[..., torch.Tensor]) -> str:
    try:
        return str(function())
    except Exception as error:
        return f"{type(error).__name__}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = result(f), result(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return int(eager == ours)


if __name__ == "__main__":
    sys.exit(main())
