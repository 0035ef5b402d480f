"""A write through `unfold` whose windows leave elements out sets those elements to zero.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11) and 2.11.0.
Functionalization writes the base back by `unfold_backward`, which knows only what lies in a window.
"""

import sys

import torch


def f(x: torch.Tensor) -> None:
    x.unfold(0, 1, 2).add_(1)


def main() -> int:
    eager, compiled = torch.arange(1.0, 5.0), torch.arange(1.0, 5.0)
    f(eager)
    torch.compile(f, backend="aot_eager")(compiled)
    print(f"torch {torch.__version__}: eager {eager.tolist()}, compiled {compiled.tolist()}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
