"""logical_or of a single element and a transposed matrix is transposed in eager and in rows when it is compiled.

Kind: wrong form.
Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11). A view that eager refuses then succeeds. copysign,
heaviside, logaddexp, logit_backward, xlogy and xlog1py are alike: their fake kernels keep the first argument's strides.
"""

import sys

import torch


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.logical_or(x, y)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, y = torch.ones(1), torch.ones(4, 2).t()
    ours, eagers = torch.compile(f, backend=backend)(x, y).stride(), f(x, y).stride()
    print(f"torch {torch.__version__}, {backend}: strides {ours}, eager's {eagers}")
    return ours == eagers


if __name__ == "__main__":
    sys.exit(main())
