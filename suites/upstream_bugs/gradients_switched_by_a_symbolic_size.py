"""Gradients that a comparison of a symbolic size switches, as in `set_grad_enabled(n > 3)`, end Dynamo in an error.

Kind: error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(x.shape[0] > 3):
        return x * 2


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    x = torch.ones(4, 2)
    f(x)  # eager does it
    try:
        torch.compile(f, backend=backend, dynamic=True)(x)
    except Exception as error:
        print(f"torch {torch.__version__}, {backend}: {type(error).__name__}: {str(error)[:100]}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
