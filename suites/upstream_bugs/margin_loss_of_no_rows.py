"""`multi_margin_loss` of no rows is whatever its memory held before: nothing writes the result.

Kind: wrong result. Backends: eager itself. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, target: torch.Tensor, before: float) -> float:
    numbers = [torch.full((), before) for _ in range(64)]
    del numbers  # their memory is the next that a number gets
    return torch.nn.functional.multi_margin_loss(x, target).item()


def main() -> int:
    found = {f(torch.ones(0, 4), torch.zeros(0, dtype=torch.int64), float(before)) for before in range(64)}
    print(f"torch {torch.__version__}: the mean of no losses is one of {sorted(found)[:4]}")
    return 0 if len(found) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
