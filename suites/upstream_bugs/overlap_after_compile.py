"""Two inputs that overlap in a later call only: the write of one is not seen through the other.

Kind: wrong result. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
Dynamo guards that inputs are distinct objects, not that their memory is disjoint, so the graph made for disjoint inputs
runs: it reads `b` as it was before `a` was written. Inductor's kernels happen to run in an order that hides it here.
"""

import sys

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 2


def main() -> int:
    compiled = torch.compile(f, backend="aot_eager")
    compiled(torch.zeros(4), torch.zeros(4))
    ours, theirs = torch.zeros(6), torch.zeros(6)
    got, want = compiled(ours[:4], ours[2:]), f(theirs[:4], theirs[2:])
    print(f"torch {torch.__version__}: eager {want.tolist()}, compiled {got.tolist()}")
    return 0 if not torch.equal(got, want) else 1


if __name__ == "__main__":
    sys.exit(main())
