"""An input that takes rows by index_put_ is then added to its flip: the sum reads what it has written.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Either statement alone is right (pytorch/pytorch#198270).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.index_put_((torch.arange(4),), x * 2.0)
    x.add_(x.flip(0))
    return x


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = f(torch.arange(4.0)), torch.compile(f, backend=backend)(torch.arange(4.0))
    print(f"torch {torch.__version__}, {backend}: eager {eager.tolist()}, compiled {ours.tolist()}")
    return int(torch.equal(eager, ours))


if __name__ == "__main__":
    sys.exit(main())
