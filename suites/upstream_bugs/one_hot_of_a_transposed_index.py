"""one_hot of a transposed index is in rows in eager; compiled, it lies as the index does.

Kind: wrong form.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). Traced, it is a comparison with a range, whose
result follows the index; eager writes ones into zeros. A view that eager allows then raises.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(x, 7)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    x = torch.arange(20).view(4, 5).t() % 7
    ours, eagers = torch.compile(f, backend=backend)(x).stride(), f(x).stride()
    print(f"torch {torch.__version__}, {backend}: strides {ours}, eager's {eagers}")
    return ours == eagers


if __name__ == "__main__":
    sys.exit(main())
