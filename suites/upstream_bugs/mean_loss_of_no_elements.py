"""Training by `mse_loss` of no elements fails with a ZeroDivisionError; `smooth_l1_loss` and `huber_loss` alike.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(x * 2, x)


def result(function: object, x: torch.Tensor) -> str:
    try:
        return str(function(x).item())  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    x = torch.ones(0, 4, requires_grad=True)
    eager, compiled = result(f, x), result(torch.compile(f, backend=backend), x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
