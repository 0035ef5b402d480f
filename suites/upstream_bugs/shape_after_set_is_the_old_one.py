"""An input that a function sets to a tensor of another shape tells the shape and the strides from before.

Kind: wrong result. Backends: aot_function with any graph compiler. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch
from functorch.compile import aot_function, nop


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
    return x + x.shape[0]


def main() -> int:
    compiled = aot_function(f, nop, keep_inference_input_mutations=True)
    eager, result = (run(torch.zeros(3), torch.zeros(6)) for run in (f, compiled))
    print(f"torch {torch.__version__}: the size is {eager.max().item()}; aot_function: {result.max().item()}")
    return 0 if eager.max() != result.max() else 1


if __name__ == "__main__":
    sys.exit(main())
