"""In inference mode, the function that `torch.func.vjp` returns raises for what saves its own result, as `tanh` does.

Kind: error. Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11). Without a compiler the
same program runs.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y, pull = torch.func.vjp(torch.tanh, x)[:2]
    return pull(y)[0]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    with torch.inference_mode():
        expected = f(torch.ones(3))
        try:
            ours = str(torch.compile(f, backend=backend)(torch.ones(3)))
        except RuntimeError as error:
            ours = str(error)
    print(f"torch {torch.__version__}, {backend}: {ours}; eager {expected}")
    return int(ours == str(expected))


if __name__ == "__main__":
    sys.exit(main())
