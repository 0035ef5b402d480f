"""An input is written through its view and then detached in place: its leaf gets a gradient, which eager cuts off.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
In eager the view's history begins anew at what was detached; where it is recorded, it is the one from before.
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    view = x.view(1, -1)
    view.reshape(-1).exp_()
    x.detach_()
    return view


def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> list[float] | None:
    leaf = torch.zeros(3, requires_grad=True)
    function(leaf.clone()).sum().backward()
    return None if leaf.grad is None else leaf.grad.tolist()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager, compiled = gradient(f), gradient(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return int(eager == compiled)


if __name__ == "__main__":
    sys.exit(main())
