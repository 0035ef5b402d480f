"""A changing integer of 2**63 or more is refused, which eager takes as an unsigned number.

Kind: error.
Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11). Smaller integers before it make it a symbol.
"""

import sys

import torch


def main() -> int:
    x = torch.ones(2)
    torch._dynamo.reset()
    compiled = torch.compile(torch.mul, backend="inductor")
    for number in (3, 5):
        compiled(x, number)
    try:
        said = str(compiled(x, 2**63))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(f"torch {torch.__version__}: eager {x * 2**63}, compiled {said}")
    return int(said == str(x * 2**63))


if __name__ == "__main__":
    sys.exit(main())
