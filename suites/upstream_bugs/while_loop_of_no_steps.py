"""The gradient of a `while_loop` that takes no step is wrong; it should be that of its initial values.

Kind: wrong result. Backends: eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The loop returns its input unchanged, so that the gradient is 1. Torch applies the body's derivative to it.
"""

import sys

import torch
from torch._higher_order_ops.while_loop import while_loop


def f(x: torch.Tensor) -> torch.Tensor:
    _, y = while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, (y * 0.9).sin()), (torch.tensor(0), x * 1))
    return y.sum()


def main() -> int:
    wrong = 0
    for name, function in (("eager", f), ("inductor", torch.compile(f, backend="inductor"))):
        x = torch.ones(3, requires_grad=True)
        function(x).backward()
        print(f"torch {torch.__version__}: {name} gives {x.grad}, right is {torch.ones(3)}")
        wrong += x.grad is None or not torch.equal(x.grad, torch.ones(3))
    return 0 if wrong else 1


if __name__ == "__main__":
    sys.exit(main())
