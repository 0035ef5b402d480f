"""The running sum of a tensor of equal bytes, asked for in bytes, is in 64 bits and does not wrap.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
A dtype of floating point is kept in this version; earlier ones lost it too (pytorch/pytorch#189518).
"""

import sys

import torch


def f() -> torch.Tensor:
    return torch.full((200,), 2, dtype=torch.uint8).cumsum(0, dtype=torch.uint8)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = f(), torch.compile(f, backend=backend)()
    print(f"torch {torch.__version__}, {backend}: eager {eager[-1]}, compiled {ours[-1]}")
    return int(eager.dtype == ours.dtype and torch.equal(eager, ours))


if __name__ == "__main__":
    sys.exit(main())
