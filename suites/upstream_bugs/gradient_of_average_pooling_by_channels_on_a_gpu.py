"""The gradient of average pooling is wrong in eager, on a GPU, for an image whose channels are innermost.

Kind: wrong result. Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12).
Elements are off by up to 1.1 where the numbers are of size 1, by 5.0 with `divisor_override=2`. The same image in rows,
on a CPU, and Inductor give the right one.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(x, 3, 1, 1)


def gradient(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    (found,) = torch.autograd.grad(f(x), x, of)
    return found


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x, of = torch.randn(2, 1, 3, 9, 9, device="cuda")
    by_channels = gradient(x.to(memory_format=torch.channels_last), of)
    off = (by_channels - gradient(x, of)).abs().max().item()
    print(f"torch {torch.__version__}: the gradient by channels is {off:.3g} from that in rows")
    return 0 if off > 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
