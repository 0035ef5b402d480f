"""Bytes that are clamped in place have a bound of int32 rounded to a byte first: max(6, -7) becomes 249.

Kind: wrong result. Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
On a CPU, and out of place, the bound and the number are compared as int32.
"""

import sys

import torch


def clamped(device: str) -> list[int]:
    x = torch.tensor([6, 1, 9], dtype=torch.uint8, device=device)
    bound = torch.tensor([-7, -1, 3], dtype=torch.int32, device=device)
    return x.clamp_(min=bound).tolist()


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    here, there = clamped("cpu"), clamped("cuda")
    print(f"torch {torch.__version__}: {there} on a GPU, {here} on a CPU")
    return 0 if there != here == [6, 1, 9] else 1


if __name__ == "__main__":
    sys.exit(main())
