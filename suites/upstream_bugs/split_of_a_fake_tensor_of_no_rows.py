"""A fake tensor of no rows cannot be split, where a real one is split into one part of no rows.

Kind: error. Backends: eager (Dynamo alone). Seen with torch 2.11.0 (CUDA, Python 3.12). Mended in torch 2.13.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.split(2)[0] * 2


def main() -> int:
    x = torch.ones(0, 4)
    eager = f(x)
    try:
        compiled = torch.compile(f, backend="eager")(x)
    except Exception as error:
        print(f"torch {torch.__version__}: eager gives {tuple(eager.shape)}, Dynamo raises {type(error).__name__}")
        return 0
    print(f"torch {torch.__version__}: eager gives {tuple(eager.shape)}, Dynamo {tuple(compiled.shape)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
