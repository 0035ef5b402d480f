"""A tensor that `view_as_complex` made cannot be an input: faking it fails, as for rotary embeddings.

Kind: error. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.real * 2


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    x = torch.view_as_complex(torch.arange(8.0).view(4, 2))
    try:
        ours = str(torch.compile(f, backend=backend)(x))
    except Exception as error:
        ours = f"{type(error).__name__}: {str(error)[:80]!r}"
    print(f"torch {torch.__version__}, {backend}: eager {f(x)}, compiled {ours}")
    return 0 if ours != str(f(x)) else 1


if __name__ == "__main__":
    sys.exit(main())
