"""A resized image of three channels, which are innermost in memory, lies in rows, compiled for a GPU.

Kind: wrong form.
Backends: inductor, on an NVIDIA GPU; any compiler that takes torch's decompositions. Seen with torch 2.11.0 (an H100,
Python 3.12). Eager's lies by channels.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x = torch.randn(2, 3, 4, 5, device="cuda").to(memory_format=torch.channels_last)
    eager, found = f(x).stride(), torch.compile(f, backend="inductor")(x).stride()
    print(f"torch {torch.__version__}: strides {found}, eager's {eager}")
    return 0 if found != eager else 1


if __name__ == "__main__":
    sys.exit(main())
