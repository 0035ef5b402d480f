"""`reshape` of a part of an input with gaps, behind a write into that input, raises where eager copies.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11) and 2.11.0.
What is recorded in the place of the written input has no gaps, so that a view is recorded, which the input has not.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x[1:].reshape(-1)


def main() -> int:
    eager = f(torch.ones(4, 6)[:, :3])
    try:
        found = torch.compile(f, backend="aot_eager")(torch.ones(4, 6)[:, :3])
    except RuntimeError as error:
        print(f"torch {torch.__version__}: eager {eager.tolist()}, compiled {error}")
        return 0
    print(f"torch {torch.__version__}: eager {eager.tolist()}, compiled {found.tolist()}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
