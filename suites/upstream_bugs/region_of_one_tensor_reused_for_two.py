"""A compiled region that is called with one tensor twice, then with two: the second call drops one of the two.

Kind: wrong result. Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable

import torch


@torch.compiler.nested_compile_region
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * w


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return product(product(x, x), w)


def outcome(function: Callable[..., torch.Tensor]) -> list[float]:
    x, w = torch.full((2,), 3.0, requires_grad=True), torch.full((2,), 2.0, requires_grad=True)
    return function(x, w).tolist()  # type: ignore[no-any-return]


def main() -> int:
    want, got = outcome(f), outcome(torch.compile(f, backend="eager"))
    print(f"torch {torch.__version__}: eager {want}, compiled {got}")
    return 0 if want != got else 1


if __name__ == "__main__":
    sys.exit(main())
