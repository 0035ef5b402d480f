"""An input that the function writes and the caller uses on: backward raises where eager's does not.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, w: torch.Tensor) -> None:
    x.mul_(w)


def outcome(function: object) -> str:
    w = torch.ones(3, requires_grad=True)
    x = torch.ones(3, requires_grad=True).clone()
    try:
        function(x, w)  # type: ignore[operator]
        x.sin().sum().backward()
    except RuntimeError as error:
        return str(error)[:70]
    return str(w.grad)


def main() -> int:
    eager, compiled = outcome(f), outcome(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
