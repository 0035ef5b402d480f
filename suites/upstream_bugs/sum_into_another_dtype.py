"""`sum` with an out= of another dtype sums in that dtype in eager, and in the dtype of its argument compiled.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
So do prod, mean, nansum, nanmean, var, std and logsumexp. Functionalization calls the operator without out=, and casts
the result. Of halves that are summed into float32, digits are lost.
"""

import sys

import torch


def f(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.sum(x, 0, out=out)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    x = torch.tensor([0.75, 0.75])
    eager, compiled = (each(x, torch.zeros((), dtype=torch.int64)) for each in (f, torch.compile(f, backend=backend)))
    print(f"torch {torch.__version__}, {backend}: eager {eager.item()}, compiled {compiled.item()}")
    return 0 if (eager.item(), compiled.item()) == (0, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
