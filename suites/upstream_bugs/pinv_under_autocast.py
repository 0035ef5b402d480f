"""linalg.pinv under autocast gives float32, where eager multiplies within it in bfloat16 and gives that.

Kind: wrong form.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def inverse(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.linalg.pinv(x)


def main() -> int:
    x = torch.eye(4)
    torch._dynamo.reset()
    dtypes = [function(x).dtype for function in (inverse, torch.compile(inverse, backend="aot_eager"))]
    print(f"torch {torch.__version__}: eager {dtypes[0]}, compiled {dtypes[1]}")
    return int(dtypes[0] == dtypes[1])


if __name__ == "__main__":
    sys.exit(main())
