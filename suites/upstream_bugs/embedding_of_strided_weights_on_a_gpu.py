"""An embedding with `max_norm` scales rows that nobody looked up, in eager on a GPU, where its weights have strides.

Kind: wrong result. Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
Rows that are looked up come out too small. The same weights in rows, and a CPU, give the right ones.
"""

import sys

import torch


def scaled(weights: torch.Tensor) -> torch.Tensor:
    torch.nn.functional.embedding(torch.tensor([0, 1], device=weights.device), weights, max_norm=1.0)
    return weights


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    strided = torch.full((5, 5, 2), 3.0, device="cuda")[..., 1]
    off = (scaled(strided.contiguous()) - scaled(strided)).abs().amax(1).tolist()
    print(f"torch {torch.__version__}: the five rows are off by {', '.join(f'{value:.3g}' for value in off)}")
    return 0 if max(off) > 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
