"""Two disjoint views of one tensor, the first written: the backward of what reads the second raises.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The read comes after the write, so eager's versions agree.
"""

import sys
from typing import Any

import torch


def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.mul_(2)
    return b.sin()


def outcome(function: Any) -> Any:
    base = torch.ones(8, requires_grad=True).clone()
    try:
        function(base[:4], base[4:]).sum().backward()
    except RuntimeError as error:
        return str(error)[:70]
    return "no error"


def main() -> int:
    eager, compiled = outcome(f), outcome(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
