"""as_strided_scatter of an input that is a view raises while Dynamo traces; eager runs it.

Kind: error. Backends: eager (Dynamo alone). Seen with torch 2.13.0 (CPU, Python 3.11).
The fake kernel counts the storage offset against a storage as large as the view.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    return x.as_strided_scatter(x.as_strided((1,), (1,), 3) + 1, (1,), (1,), 3)


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(6.0).as_strided((3,), (1,), 2),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    f(*inputs())  # eager runs it
    try:
        torch.compile(f, backend=backend)(*inputs())
    except Exception as error:
        print(f"torch {torch.__version__}, {backend}: {type(error).__name__}: {str(error).strip()[:200]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
