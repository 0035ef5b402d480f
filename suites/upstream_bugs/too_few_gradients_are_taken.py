"""An autograd.Function whose backward gives too few gradients is refused by eager and taken by Dynamo.

Kind: missing error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        return slope


def f(x: Any) -> Any:
    return Product.apply(x, x.detach())


def main() -> int:
    found = []
    for function in (f, torch.compile(f, backend="eager")):
        try:
            function(x := torch.ones(2, requires_grad=True)).sum().backward()
            found.append(str(x.grad))
        except RuntimeError:
            found.append("an error")
    print(f"torch {torch.__version__}: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] == "an error" != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
