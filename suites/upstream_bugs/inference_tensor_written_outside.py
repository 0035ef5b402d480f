"""Writing an inference tensor outside of inference mode is an error in eager and passes when it is compiled.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    try:
        f(inference_tensor())
        return 1
    except RuntimeError as error:
        print(f"eager: {str(error)[:80]}")
    print(f"torch {torch.__version__}, {backend}: {torch.compile(f, backend=backend)(inference_tensor())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
