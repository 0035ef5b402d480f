"""Training through `affine_grid` with dynamic sizes fails: its backward takes sizes that are numbers alone.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=False)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments).shape)  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    arguments = torch.ones(1, 2, 3, 5, 4), torch.ones(1, 3, 4, requires_grad=True)
    eager, compiled = result(f, *arguments), result(torch.compile(f, backend=backend, dynamic=True), *arguments)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
