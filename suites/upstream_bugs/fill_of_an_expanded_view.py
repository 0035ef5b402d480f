"""`fill_` of an expanded view adds the copies up.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager fills with 1; compiled, the view is undone by a sum over what was expanded.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.clone().expand(3, 3).fill_(1)


def main() -> int:
    eager, compiled = f(torch.zeros(3)), torch.compile(f, backend="aot_eager")(torch.zeros(3))
    print(f"torch {torch.__version__}: eager {eager[0].tolist()}, compiled {compiled[0].tolist()}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
