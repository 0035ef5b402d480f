"""`contiguous()` of a part of an input with gaps, behind a write into that input, gives a view of the input.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11) and 2.11.0.
What is recorded in the place of the written input has no gaps, so that `contiguous()` is recorded as nothing.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x[:2].contiguous()


def main() -> int:
    given, other = torch.ones(8)[::2], torch.ones(8)[::2]
    eager, compiled = f(given), torch.compile(f, backend="aot_eager")(other)
    shared = [y.data_ptr() == x.data_ptr() for x, y in ((given, eager), (other, compiled))]
    print(f"torch {torch.__version__}: shares memory with the input: eager {shared[0]}, compiled {shared[1]}")
    return 0 if shared == [False, True] else 1


if __name__ == "__main__":
    sys.exit(main())
