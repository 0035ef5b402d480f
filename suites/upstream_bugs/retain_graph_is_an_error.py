"""`backward(retain_graph=True)` raises: the compiled backward has donated its buffers.

Kind: error. Backends: aot_eager, inductor (dynamic shapes). Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(w: torch.Tensor) -> torch.Tensor:
    return w.exp() * w


def gradient(function: object) -> list[float] | str:
    w = torch.ones(3, requires_grad=True)
    try:
        y = function(w).sum()  # type: ignore[operator]
        y.backward(retain_graph=True)
        y.backward()
    except RuntimeError as error:
        return str(error)[:60]
    return w.grad.tolist()  # type: ignore[union-attr]


def main() -> int:
    eager, compiled = gradient(f), gradient(torch.compile(f, backend="aot_eager", dynamic=True))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
