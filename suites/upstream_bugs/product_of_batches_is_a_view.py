"""A product of batches is a view of a tensor that nobody gets, so that `detach_` of it raises; eager's is none.

Kind: error. Backends: aot_eager. Seen with torch 2.11.0 and 2.13.0 (CPU, Python 3.11).
Eager ends in `_unsafe_view`; the Python decomposition of matmul, which recordings run, ends in `view`.
"""

import sys

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    given = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    f(*given).detach_()  # eager does it
    try:
        torch.compile(f, backend=backend)(*given).detach_()
    except RuntimeError as error:
        print(f"torch {torch.__version__}, {backend}: RuntimeError: {str(error)[:120]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
