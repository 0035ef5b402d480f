"""An embedding with `max_norm` scales rows that nobody looked up, in eager on a GPU, where the places have strides.

Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
What lies between the places is read as places. Eager with the same places in rows scales the rows that it should.
"""

import sys

import torch


def scaled(places: torch.Tensor) -> torch.Tensor:
    weights = torch.full((5, 4), 3.0, device="cuda")
    torch.nn.functional.embedding(places, weights, max_norm=1.0)
    return weights


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    places = torch.tensor([[4, 0], [4, 1]], device="cuda")[:, 1]  # rows 0 and 1, and 4 between them
    off = (scaled(places) - scaled(places.contiguous())).abs().max().item()
    print(f"torch {torch.__version__}: the weights are off by {off:.3g}")
    return 0 if off > 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
