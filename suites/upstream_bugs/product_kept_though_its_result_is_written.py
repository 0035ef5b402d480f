"""The caller writes into a result of `linear` before backward, and gets a wrong gradient of another result.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11). aot_eager is right.
Eager's backward reads the powers, not the product. The compiled one keeps the product to compute them again; its memory
is that of the result, and nothing checks that it is as it was.
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = F.linear(x, w)
    return y, y.float().exp().sum()


def gradient(function: object) -> float:
    x, w = torch.ones(2, 3, 4).bfloat16().requires_grad_(), torch.ones(5, 4).bfloat16()
    y, total = function(x, w)  # type: ignore[operator]
    with torch.no_grad():
        y.zero_()
    total.backward()
    return x.grad.flatten()[0].item()  # type: ignore[union-attr]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, compiled = gradient(f), gradient(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return int(eager == compiled)


if __name__ == "__main__":
    sys.exit(main())
