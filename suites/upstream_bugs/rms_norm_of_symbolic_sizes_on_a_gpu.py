"""RMS norm over sizes that are symbols fails, compiled for a GPU: their addresses are taken for the sizes.

Kind: error.
Backends: aot_eager, on an NVIDIA GPU; any that torch's dispatcher records for, as ours. Seen with torch 2.11.0 (an
H100, Python 3.12).
"""

import sys

import torch


def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-2], x.shape[-1]), weight)


def main() -> int:
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x, weight = (torch.randn(size, device="cuda", requires_grad=True) for size in ((2, 2, 3), (2, 3)))
    f(x, weight)
    try:
        torch.compile(f, backend="aot_eager", dynamic=True)(x, weight)
    except RuntimeError as error:
        print(f"torch {torch.__version__}: {error}")
        return 0 if "normalized_shape = [-" in str(error) else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
