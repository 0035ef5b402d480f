"""Forward-mode differentiation through a compiled function gives no tangent, as if the input did not matter.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def f(x: Tensor) -> Tensor:
    return x.sin() * 2


def slope(function: Any) -> list[float] | None:
    with forward_ad.dual_level():
        y = function(forward_ad.make_dual(torch.zeros(2), torch.ones(2)))
        tangent = forward_ad.unpack_dual(y).tangent
    return None if tangent is None else tangent.tolist()


def main() -> int:
    eager, compiled = slope(f), slope(torch.compile(f, backend="inductor"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
