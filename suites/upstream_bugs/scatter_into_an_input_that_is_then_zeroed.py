"""A slice_scatter of an input is zero where the input is zeroed afterwards; in eager it is a copy.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
select_scatter and diagonal_scatter are alike (pytorch/pytorch#198094).
"""

import sys

import torch


def f(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    y = torch.slice_scatter(x, part, 0, 1, 3)
    x.zero_()
    return y


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = (
        f(torch.ones(4), torch.full((2,), 2.0)),
        torch.compile(f, backend=backend)(torch.ones(4), torch.full((2,), 2.0)),
    )
    print(f"torch {torch.__version__}, {backend}: eager {eager.tolist()}, compiled {ours.tolist()}")
    return int(torch.equal(eager, ours))


if __name__ == "__main__":
    sys.exit(main())
