"""An input viewed as its own dtype, beside an overlapping input that is written: an AssertionError at the call.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The chain of views that is replayed for the output gives another shape than eager's.
"""

import sys
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> Any:
    v = b.view(torch.int64)
    a.view(-1).add_(1)
    return v


def inputs() -> tuple[torch.Tensor, ...]:
    s = torch.arange(1)
    return s.view(1, 1).t(), s.as_strided((1, 1), (1, 1))


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
