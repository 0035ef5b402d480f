"""A view taken under no_grad is cut off from its input in eager; compiled, gradients flow through it.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The gradient of x is that of both outputs, and should be that of the second.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    with torch.no_grad():
        v = x.view(2, 2)
    return v.view_as(v), x * 2


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.ones(4, requires_grad=True),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    found = []
    for function in (f, torch.compile(f, backend=backend)):
        (x,) = inputs()
        sum(out.sum() for out in function(x) if out.requires_grad).backward()
        found.append(str(x.grad))
    print(f"torch {torch.__version__}, {backend}: gradient: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
