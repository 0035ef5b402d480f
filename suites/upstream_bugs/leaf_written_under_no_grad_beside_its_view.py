"""A leaf that requires grad is written under no_grad, beside a view of it as a second input: an AssertionError.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Leaf and view share storage; only one of them is a leaf (any_leaf=True != all_leaf=False).
"""

import sys
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.no_grad():
        a.mul_(2)
    return a, b + 1


def inputs() -> tuple[torch.Tensor, ...]:
    s = torch.arange(9.0).requires_grad_()
    return s, s[2::3]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    f(*inputs())  # eager runs it
    try:
        torch.compile(f, backend=backend)(*inputs())
    except Exception as error:
        print(f"torch {torch.__version__}, {backend}: {type(error).__name__}: {str(error).strip()[:200]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
