"""The update of a list of tensors, by torch._foreach_add_, reads elements that it has already written.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
x.add_(x.flip(0)) is right (pytorch/pytorch#198033).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], [x.flip(0)])
    return x


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = f(torch.arange(4.0)), torch.compile(f, backend=backend)(torch.arange(4.0))
    print(f"torch {torch.__version__}, {backend}: eager {eager.tolist()}, compiled {ours.tolist()}")
    return int(torch.equal(eager, ours))


if __name__ == "__main__":
    sys.exit(main())
