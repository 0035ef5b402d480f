"""`affine_grid` under autocast gives float32, where eager gives the dtype of autocast, that of the product in it.

Kind: wrong form. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
What the operator is recorded as multiplies below autocast.
"""

import sys

import torch


def f(theta: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.affine_grid(theta, [2, 3, 4, 5], align_corners=False)


def main() -> int:
    theta = torch.ones(2, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        eager, compiled = f(theta).dtype, torch.compile(f, backend="aot_eager")(theta).dtype
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return int(eager == compiled)


if __name__ == "__main__":
    sys.exit(main())
