"""aminmax writes into tensors of another dtype, which eager refuses.

Kind: missing error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
pytorch/pytorch#137213.
"""

import sys
from collections.abc import Callable

import torch


def f(x: torch.Tensor, least: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
    torch.aminmax(x, dim=-1, out=(least, most))
    return least


def result(function: Callable[..., torch.Tensor]) -> str:
    try:
        return str(function(torch.ones(2, 3), torch.ones(2).double(), torch.ones(2).double()))
    except Exception as error:
        return f"{type(error).__name__}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = result(f), result(torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return int(eager == ours or "Error" in ours)


if __name__ == "__main__":
    sys.exit(main())
