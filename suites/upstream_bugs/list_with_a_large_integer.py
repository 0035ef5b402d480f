"""A list with an integer beyond 32 bits becomes a tensor of its lowest 32 bits, once the integer changes.

Kind: wrong result.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). So does an index x[[n, 0]].
"""

import sys

import torch


def stamped(time: int) -> torch.Tensor:
    return torch.as_tensor([time, 1]) * 1


def main() -> int:
    torch._dynamo.reset()
    compiled = torch.compile(stamped, backend="aot_eager")
    for time in (1, 2):
        compiled(time)
    given = 1_796_000_000_000
    print(f"torch {torch.__version__}: eager {stamped(given).tolist()}, compiled {compiled(given).tolist()}")
    return int(torch.equal(stamped(given), compiled(given)))


if __name__ == "__main__":
    sys.exit(main())
