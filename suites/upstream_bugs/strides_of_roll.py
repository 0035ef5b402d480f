"""roll of images by channels keeps them so; of fake tensors its result is in rows.

Kind: wrong form.
Backends: none; fake tensors show it. Seen with torch 2.13.0 (CPU, Python 3.11). A compiler that writes results as they
are recorded then hands as_strided other numbers. Of isin, normal and any over no dimensions the real results are in
rows, and the fake ones lie as the argument.
"""

import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def main() -> int:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        fake = torch.roll(mode.from_tensor(x), 1, 1).stride()
    real = torch.roll(x, 1, 1).stride()
    print(f"torch {torch.__version__}: strides {fake} of a fake tensor, {real} of a real one")
    return fake == real


if __name__ == "__main__":
    sys.exit(main())
