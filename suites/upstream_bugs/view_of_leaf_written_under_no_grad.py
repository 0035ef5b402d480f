"""A view of a leaf, viewed again and written, all under no_grad: the compiler fails where eager does not.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Reading requires_grad of a view made under no_grad and written with gradients on raises inside the analysis.
"""

import sys
from typing import Any

import torch


def f(b: torch.Tensor) -> Any:
    v = b[1:]
    v.sub_(v)
    return v


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(4.0).requires_grad_()[1:],)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    torch.set_grad_enabled(False)
    f(*inputs())  # eager runs it
    try:
        torch.compile(f, backend=backend)(*inputs())
    except Exception as error:
        print(f"torch {torch.__version__}, {backend}: {type(error).__name__}: {str(error).strip()[:200]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
