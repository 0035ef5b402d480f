"""`clamp(min=0)` of -0.0 gives +0.0.

Kind: wrong result. Backends: inductor (C++). Seen with torch 2.13.0 (CPU, Python 3.11).
Eager keeps -0.0, so `1 / y` is -inf in eager and +inf compiled.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


def main() -> int:
    x = torch.full((8,), -0.0)
    eager, compiled = 1 / f(x), 1 / torch.compile(f, backend="inductor")(x)
    print(f"torch {torch.__version__}: 1 / eager = {eager[0]}, 1 / compiled = {compiled[0]}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
