"""Interpolation of an image of no rows gives what lies in memory before it, where eager refuses it.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
With aot_eager the read is refused, by another error (pytorch/pytorch#197095).
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, size=(2, 2))


def result(function: Callable[..., torch.Tensor]) -> str:
    try:
        return str(function(torch.ones(1, 1, 0, 3)))
    except Exception as error:
        return f"{type(error).__name__}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = result(f), result(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return int(eager == ours or "Error" in ours)


if __name__ == "__main__":
    sys.exit(main())
