"""The gradient of `nll_loss` is zero where no target stands; compiled it is NaN there if the tangent is infinite.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The decomposition multiplies a mask by the tangent. Of a negative tangent the zeros, and those of targets that are
ignored, have the other sign too.
"""

import sys

import torch
from torch.nn.functional import nll_loss


def f(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nll_loss(x, target, reduction="none")


def gradient(function: object) -> torch.Tensor:
    x = torch.zeros(1, 3, requires_grad=True)
    function(x, torch.tensor([1])).backward(torch.tensor([float("inf")]))  # type: ignore[operator]
    assert x.grad is not None
    return x.grad


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, compiled = gradient(f), gradient(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager.tolist()}, compiled {compiled.tolist()}")
    return 0 if bool(compiled.isnan().any()) and not bool(eager.isnan().any()) else 1


if __name__ == "__main__":
    sys.exit(main())
