"""A leaf beside its detached view, which the function writes: compiling fails with an AssertionError.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch


def f(w: torch.Tensor, detached: torch.Tensor) -> torch.Tensor:
    detached.mul_(2)
    return w + 1


def outcome(function: Any) -> Any:
    w = torch.ones(3, requires_grad=True)
    try:
        return function(w, w.detach()).tolist()
    except Exception as error:
        return type(error).__name__


def main() -> int:
    eager, compiled = outcome(f), outcome(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
