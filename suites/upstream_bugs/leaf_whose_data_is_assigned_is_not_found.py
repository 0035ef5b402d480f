"""Behind Dynamo, a backward for a leaf whose data the program assigned finds no gradient of it.

Kind: wrong result. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Dynamo writes the assignment as `set_`, after which the leaf has another accumulator than the graph leads to.
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    x.data = torch.zeros(3)
    return y


def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    x = torch.ones(3, requires_grad=True)
    function(x).sum().backward(inputs=[x])
    return x.grad


def main() -> int:
    expected = gradient(f)
    found = {backend: gradient(torch.compile(f, backend=backend)) for backend in ("eager", "aot_eager", "inductor")}
    print(f"torch {torch.__version__}: eager {expected}, compiled {found}")
    return 0 if expected is not None and all(each is None for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
