"""A tensor made under `inference_mode` inside the function is no inference tensor.

Kind: wrong form. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager refuses to record a gradient through it; compiled, the same use is accepted.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return x + 1


def main() -> int:
    eager, compiled = f(torch.ones(3)), torch.compile(f, backend="aot_eager")(torch.ones(3))
    print(f"torch {torch.__version__}: eager {eager.is_inference()}, compiled {compiled.is_inference()}")
    return 0 if eager.is_inference() and not compiled.is_inference() else 1


if __name__ == "__main__":
    sys.exit(main())
