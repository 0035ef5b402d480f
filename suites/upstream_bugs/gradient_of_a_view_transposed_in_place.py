"""The gradient behind a view that is transposed in place and then written is that of another part of its base.

Kind: wrong result.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). What changes the shape of a view in place
(unsqueeze_, squeeze_, transpose_) is lost when autograd takes the view again for the gradient of the write.
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    part = y[1:]
    part.t_()
    part[0] = 3
    return y


def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    x = torch.ones(3, 4, requires_grad=True)
    return torch.autograd.grad(function(x).sum(), x)[0]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    ours, eagers = gradient(torch.compile(f, backend=backend)), gradient(f)
    print(f"torch {torch.__version__}, {backend}: {ours.tolist()}, eager {eagers.tolist()}")
    return int(torch.equal(ours, eagers))


if __name__ == "__main__":
    sys.exit(main())
