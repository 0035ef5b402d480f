"""A view of an intermediate that is returned too has that output as its _base in eager, and none compiled.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
expand(3) of a tensor of one element. What asks whether a tensor is a view (in-place autograd rules do) is told no.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    v = x.any()
    return v, v.expand(3)


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(1.0),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    one, two = torch.compile(f, backend=backend)(*inputs())
    first, second = f(*inputs())
    told = f"eager {second._base is first}, compiled {two._base is one}"
    print(f"torch {torch.__version__}, {backend}: a view of it: {told}")
    return 0 if (two._base is one) != (second._base is first) else 1


if __name__ == "__main__":
    sys.exit(main())
