"""A float that a recording reads out of a tensor counts as greater than itself.

Kind: wrong result.
Backends: none; fake tensors show it. Seen with torch 2.13.0 (CPU, Python 3.11). `hardtanh` refuses such a number as
both of its bounds.
"""

import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def main() -> int:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        number = mode.from_tensor(torch.tensor(0.5, dtype=torch.float64)).item()
        is_greater = bool(number > number)
    print(f"torch {torch.__version__}: {number} > {number} is {is_greater}")
    return not is_greater


if __name__ == "__main__":
    sys.exit(main())
