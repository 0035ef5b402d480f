"""A compiled region is called twice with dynamic sizes and no gradients: compiling fails with a KeyError.

Kind: error. Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch


@torch.compiler.nested_compile_region
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w)


def outcome(**options: Any) -> str:
    layers = [torch.nn.Linear(3, 3) for _ in range(3)]

    def f(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = product(x, layer.weight) + layer.bias
        return x

    try:
        with torch.no_grad():
            return str(torch.compile(f, **options)(torch.ones(2, 3)).shape)
    except Exception as error:
        return type(error).__name__


def main() -> int:
    want, got = outcome(disable=True), outcome(backend="eager", dynamic=True)
    print(f"torch {torch.__version__}: eager {want}, compiled {got}")
    return 0 if want != got else 1


if __name__ == "__main__":
    sys.exit(main())
