"""An autograd.Function saves its result, which is written in place: no error, and another gradient.

Kind: missing error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(y := x * 2)
        return y

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        return slope * ctx.saved_tensors[0]


def main() -> int:
    def f(x: Any) -> Any:
        return Doubled.apply(x).add_(1)

    found = []
    for function in (f, torch.compile(f, backend="aot_eager")):
        try:
            function(x := torch.ones(2, requires_grad=True)).sum().backward()
            found.append(str(x.grad))
        except RuntimeError:
            found.append("an error")
    print(f"torch {torch.__version__}: eager and compiled {found}")
    return 0 if found[0] == "an error" != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
