"""movedim(0, 0) of an input, beside an overlapping input that is written: a RuntimeError about sparse_coo.

Kind: error. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
With inputs that overlap, the views of one input are replayed on the shared base as if they were its own.
"""

import sys
from typing import Any

import torch


def f(b: torch.Tensor, c: torch.Tensor) -> Any:
    v = b.movedim(0, 0)
    c.add_(1)
    return v


def inputs() -> tuple[torch.Tensor, ...]:
    s = torch.arange(35.0)
    return s[6:34].view(2, 14), s


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
