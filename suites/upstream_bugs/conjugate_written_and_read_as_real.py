"""A lazily conjugated tensor that was written is recorded as if it were not lazy, so that taking its parts fails.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = x.conj()
    y[2:4] = 1
    return y.imag


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    expected = str(f(torch.arange(4).to(torch.complex64)))
    try:
        ours = str(torch.compile(f, backend=backend)(torch.arange(4).to(torch.complex64)))
    except Exception as error:
        ours = f"{type(error).__name__}: {str(error).splitlines()[1][:70]}"
    print(f"torch {torch.__version__}, {backend}: eager {expected}, compiled {ours}")
    return 0 if ours != expected else 1


if __name__ == "__main__":
    sys.exit(main())
