"""Writing in place a result of an autograd.Function whose gradient is kept fails an internal assertion.

Kind: error.
Backends: none is needed. Behind compilers whose calls are one autograd.Function, as those of aot_eager and inductor
are, so does writing a result of a compiled function. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2 + gradients[1] * 3


def main() -> int:
    _, second = Two.apply(torch.ones(3, requires_grad=True))
    second.retain_grad()
    try:
        second.add_(1)
    except RuntimeError as error:
        print(f"torch {torch.__version__}: {str(error)[:120]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
