"""The gradient of `scan`, in eager, misses what flows back through the state that is carried from step to step.

Kind: wrong result. Backends: eager (torch itself, nothing compiled). Seen with torch 2.11.0 (CPU, Python 3.11).
Mended in torch 2.13.
"""

import sys

import torch
from torch._higher_order_ops import scan


def step(state: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    state = state / 2 + x
    return state, state.clone()


def steps_of_python(state: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
    rows = []
    for x in xs:
        state, row = step(state, x)
        rows.append(row)
    return torch.stack(rows)


def main() -> int:
    xs = torch.zeros(3, requires_grad=True)
    (found,) = torch.autograd.grad(scan(step, torch.zeros(()), xs)[1].sum(), xs)
    (right,) = torch.autograd.grad(steps_of_python(torch.zeros(()), xs).sum(), xs)
    print(f"torch {torch.__version__}: the gradient of a loop is {right.tolist()}, that of scan {found.tolist()}")
    return 0 if not torch.equal(found, right) else 1


if __name__ == "__main__":
    sys.exit(main())
