"""Parts of a value that is returned detached too give the input no gradient.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
pytorch/pytorch#194479.
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin()
    return y[:4], y[4:], y.detach()


def gradient(function: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> torch.Tensor | None:
    x = torch.ones(8, requires_grad=True)
    first, second, _ = function(x)
    (first.sum() + second.sum()).backward()
    return x.grad


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = gradient(f), gradient(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return int(ours is not None)


if __name__ == "__main__":
    sys.exit(main())
