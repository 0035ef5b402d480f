"""`np.geomspace` and `np.logspace` give float32 behind Dynamo, where NumPy gives float64.

Kind: wrong form. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
So do `np.identity` and `np.tri`.
"""

import sys

import numpy as np
import torch


def f(x: np.ndarray) -> np.ndarray:
    return np.geomspace(1, 100, len(x))


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    x = np.array([1.0, 2.0, 3.0])
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager.dtype}, compiled {compiled.dtype}")
    return 0 if eager.dtype != compiled.dtype else 1


if __name__ == "__main__":
    sys.exit(main())
