"""An input with gaps is written in place, and a part of it is flattened: the compiled call raises.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager copies the part, as no view of it is flat. Functionalization keeps the written values without the gaps, so a view
of them is flat. At run time the same view is taken of the input itself, and there is none.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.mul_(x)
    return x[:2].flatten()


def given() -> torch.Tensor:
    return torch.arange(12.0).view(4, 3)[:, 1:]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager = f(given()).tolist()
    try:
        compiled = torch.compile(f, backend=backend)(given()).tolist()
    except RuntimeError as error:
        print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled: {str(error)[:60]}")
        return int("view size is not compatible" not in str(error))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
