"""The gradient of `x ** n` with an `n` that changes from call to call is an internal error: it is compared with 0.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, n: int) -> torch.Tensor:
    return x**n


def slope(function: object, n: int) -> torch.Tensor:
    x = torch.ones(3, requires_grad=True)
    function(x, n).sum().backward()  # type: ignore[operator]
    assert x.grad is not None
    return x.grad


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]!r}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    compiled = torch.compile(f, backend=backend)
    for n in (2, 3):
        eager, ours = result(slope, f, n), result(slope, compiled, n)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if eager != ours else 1


if __name__ == "__main__":
    sys.exit(main())
