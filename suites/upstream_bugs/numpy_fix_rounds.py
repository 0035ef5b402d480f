"""`np.fix` of 1.5 is 2.0 behind Dynamo: it rounds instead of cutting off.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import numpy as np
import torch


def f(x: np.ndarray) -> np.ndarray:
    return np.fix(x)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    x = np.array([1.5, -1.5])
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if repr(eager) != repr(compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
