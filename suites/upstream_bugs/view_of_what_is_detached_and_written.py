"""A tensor is detached in place and written while a view of it is returned: compiling fails with an internal assert.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager returns the numbers. The history that autograd makes anew for the view asks its base for one, which has none.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    view = y.t()
    y.detach_()
    y.mul_(3)
    return view


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    x = torch.ones(2, 3, requires_grad=True)
    eager = f(x).tolist()
    try:
        compiled = torch.compile(f, backend=backend)(x).tolist()
    except Exception as error:
        assertion = next((line for line in str(error).splitlines() if "INTERNAL ASSERT" in line), "")
        print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled: {assertion[:60]}")
        return int(not assertion)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
