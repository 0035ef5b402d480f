"""A compiled region is called twice with dynamic sizes and no gradients: compiling fails with a KeyError.

Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.nested_compile_region
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = product(x, layer.weight) + layer.bias
        return x


def outcome(function: Callable[..., Any]) -> str:
    try:
        with torch.no_grad():
            return str(tuple(function(torch.ones(2, 3)).shape))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> int:
    model = Layers()
    want, got = outcome(model), outcome(torch.compile(model, backend="eager", dynamic=True))
    print(f"torch {torch.__version__}: eager {want}, compiled {got}")
    return 0 if want != got else 1


if __name__ == "__main__":
    sys.exit(main())
