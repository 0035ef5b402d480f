"""torch.tensor of a number that changes raises where the dtype does not hold it, and eager gives an infinity.

Kind: error.
Backends: eager, aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11). The first number of a program is taken.
"""

import sys

import torch


def made(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float32)


def main() -> int:
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="eager")
    for number in (1.5, 2.5):
        compiled(number)
    try:
        said = str(compiled(1e300))
    except RuntimeError as error:
        said = str(error)
    print(f"torch {torch.__version__}: eager {made(1e300)}, compiled {said}")
    return int(said == str(made(1e300)))


if __name__ == "__main__":
    sys.exit(main())
