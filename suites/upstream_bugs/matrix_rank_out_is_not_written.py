"""`linalg.matrix_rank(..., hermitian=True, out=)` leaves `out` as it was.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Functionalization loses the write: the recorded graph is empty, and the call returns what `out` held before. Without
`out`, and without `hermitian`, the rank is right.
"""

import sys

import torch
from torch import Tensor


def rank(x: Tensor, out: Tensor) -> Tensor:
    return torch.linalg.matrix_rank(x, hermitian=True, out=out)


def main() -> int:
    x, found = torch.eye(5), {}
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        out = torch.ones((), dtype=torch.int64)
        found[backend] = torch.compile(rank, backend=backend)(x, out).item()
    print(f"torch {torch.__version__}: {found}")
    return 0 if found == {"eager": 5, "aot_eager": 1} else 1


if __name__ == "__main__":
    sys.exit(main())
