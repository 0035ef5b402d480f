"""view_as of an input, beside an overlapping input that is written: a RuntimeError about the shape.

Kind: error. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
With inputs that overlap, the views of one input are replayed on the shared base as if they were its own.
"""

import sys
from typing import Any

import torch


def f(c: torch.Tensor, d: torch.Tensor) -> Any:
    c[0] = 2
    return d.view_as(d), c.view_as(c)


def inputs() -> tuple[torch.Tensor, ...]:
    s = torch.arange(4.0)
    return s[2:], s.view(2, -1, 2)


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
