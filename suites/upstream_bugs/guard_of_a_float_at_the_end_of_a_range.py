"""A number that is guarded as a float is not guarded where the integer it is made of ends the range that is known.

Kind: wrong result.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). As a float, 2**63 - 1 is 2**63: the guard on
half of it is found to hold for no integer below 2**63, and is dropped as if it always held.
"""

import sys

import torch


def drawn(x: torch.Tensor, n: int) -> torch.Tensor:
    torch._check(-(2**63) <= n)
    torch._check(n < 2**63)
    return x.clone().normal_(n * 0.5, 1)


def main() -> int:
    compiled = torch.compile(drawn, backend="aot_eager")
    x = torch.zeros(())
    for number in (5, 2**63 - 1):
        compiled(x, number)
    found = compiled(x, 9).item()
    print(f"torch {torch.__version__}: a draw around 4.5 is {found}")
    return found < 1e18


if __name__ == "__main__":
    sys.exit(main())
