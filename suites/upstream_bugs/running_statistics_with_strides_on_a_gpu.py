"""Batch norm in training leaves running statistics as they were, in eager on a GPU, where these have strides.

Kind: wrong result. Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
cuDNN is given copies of them in rows, and these are what it updates. Eager without cuDNN updates the statistics.
"""

import sys

import torch


def updated(x: torch.Tensor) -> torch.Tensor:
    mean, var = torch.zeros(2, 3, 2, device="cuda")[..., 1]
    torch.nn.functional.batch_norm(x, mean, var, torch.ones_like(mean), torch.zeros_like(mean), training=True)
    return torch.stack([mean, var])


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x = torch.randn(4, 3, 5, 5, device="cuda") + 1
    by_cudnn = updated(x)
    with torch.backends.cudnn.flags(enabled=False):
        off = (by_cudnn - updated(x)).abs().max().item()
    print(f"torch {torch.__version__}: the statistics are {off:.3g} from those that are updated")
    return 0 if off > 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
