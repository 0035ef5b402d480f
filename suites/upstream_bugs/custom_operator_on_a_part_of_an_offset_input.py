"""An operator of the user's that mutates a slice of an input which itself begins within its storage writes other rows.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Functionalization takes the slice's place in the storage for its place in the input.
"""

import sys

import torch


@torch.library.custom_op("upstream_offset::negate", mutates_args=("x",))
def negate(x: torch.Tensor) -> None:
    x.neg_()


def f(x: torch.Tensor) -> None:
    negate(x[1:3])


def main() -> int:
    eager, compiled = (torch.arange(1.0, 11.0).view(5, 2)[1:] for _ in range(2))
    f(eager)
    torch.compile(f, backend="aot_eager")(compiled)
    print(f"torch {torch.__version__}: eager {eager.tolist()}, compiled {compiled.tolist()}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
