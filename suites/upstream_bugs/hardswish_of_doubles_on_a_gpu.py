"""The hard swish of doubles is as exact as a float's: 3e-8 of the value off, where it is the number given.

Kind: wrong result. Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
Its kernel multiplies by a sixth that was rounded to float32, and so does that of the gradient.
"""

import sys

import torch


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x = torch.linspace(3, 9, 100, dtype=torch.float64)  # x * 6 / 6
    off = [(torch.nn.functional.hardswish(x.to(device)).cpu() / x - 1).abs().max().item() for device in ("cpu", "cuda")]
    print(f"torch {torch.__version__}: off by {off[1]:.2g} of the value on a GPU, by {off[0]:.2g} on a CPU")
    return 0 if off[1] > 1e-9 > off[0] else 1


if __name__ == "__main__":
    sys.exit(main())
