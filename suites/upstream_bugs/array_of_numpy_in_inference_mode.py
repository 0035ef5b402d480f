"""A function that reads a NumPy number fails in inference mode once it was compiled outside of it: a guard on itself.

Kind: error. Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import numpy as np
import torch

NUMBER = np.float64(0.5)


def f(x: torch.Tensor) -> torch.Tensor:
    return x * NUMBER


def result(function: object, x: torch.Tensor) -> str:
    try:
        with torch.inference_mode():
            return str(function(x))  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled, x = torch.compile(f, backend=backend), torch.ones(2)
    compiled(x)
    eager, ours = result(f, x), result(compiled, x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if eager != ours else 1


if __name__ == "__main__":
    sys.exit(main())
