"""A scan under vmap does not compile with symbolic sizes: Dynamo has no batching rule for a size.

Kind: error. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch
from torch._higher_order_ops.scan import scan


def step(c: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return c * x, (c + x).sin()


def f(c: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda c, x: scan(step, c, x))(c, xs)[1]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    c, xs = torch.ones(2, 3), torch.ones(2, 4, 3)
    expected = f(c, xs).shape
    try:
        found = str(torch.compile(f, backend=backend, dynamic=True)(c, xs).shape)
    except Exception as error:
        found = type(error).__name__
    print(f"torch {torch.__version__}, {backend}: eager {expected}, compiled {found}")
    return 0 if found.endswith("Error") else 1


if __name__ == "__main__":
    sys.exit(main())
