"""`torch.autograd.grad(is_grads_batched=True)` through a compiled function fails in a kernel.

Kind: error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch
from torch import Tensor


def f(x: Tensor) -> Tensor:
    return x.sin() * 2


def slopes(function: Any) -> list[list[float]] | str:
    x = torch.zeros(2, requires_grad=True)
    try:
        (found,) = torch.autograd.grad(function(x), x, torch.eye(2), is_grads_batched=True)
    except RuntimeError as error:
        return str(error)[:60]
    return found.tolist()


def main() -> int:
    eager, compiled = slopes(f), slopes(torch.compile(f, backend="inductor"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
