"""addcdiv of float16 refuses a value that float16 does not hold. Behind Dynamo a float that has changed is taken.

Kind: missing error. Backends: eager behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor, number: float) -> torch.Tensor:
    return torch.addcdiv(x, x, x, value=number)


def raised(function: Callable[..., object], number: float) -> str:
    try:
        function(torch.ones(3, dtype=torch.float16), number)
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


def main() -> int:
    compiled = torch.compile(f, backend="eager")
    compiled(torch.ones(3, dtype=torch.float16), 2.0)
    outcomes = raised(f, 1e300), raised(compiled, 1e300)
    print(f"torch {torch.__version__}: eager raises {outcomes[0]}, Dynamo {outcomes[1]}")
    return int(outcomes[0] == outcomes[1])


if __name__ == "__main__":
    sys.exit(main())
