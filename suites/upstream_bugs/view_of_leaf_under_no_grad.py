"""A view of a leaf made under `no_grad` comes back with a `grad_fn`.

Kind: missing error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager: the view is a leaf without `grad_fn`, so backward through it raises.
Compiled: it has a `grad_fn`, and backward through it silently gives the leaf a gradient.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x[1:]


def main() -> int:
    x = torch.ones(3, requires_grad=True)
    eager, compiled = f(x), torch.compile(f, backend="aot_eager")(x)
    print(f"torch {torch.__version__}: eager grad_fn={eager.grad_fn}, compiled grad_fn={compiled.grad_fn}")
    return 0 if (eager.grad_fn is None) != (compiled.grad_fn is None) else 1


if __name__ == "__main__":
    sys.exit(main())
