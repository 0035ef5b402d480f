"""The gradients of hardtanh (relu6) and hardswish at NaN are two things: one where a vector is full, another elsewhere.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). hardtanh gives 0 and the gradient, hardswish
NaN and the gradient.
"""

import sys

import torch
from torch.nn.functional import hardswish, relu6


def main() -> int:
    is_split = []
    for function in (relu6, hardswish):
        x = torch.full((37,), torch.nan, requires_grad=True)
        function(x).sum().backward()
        assert x.grad is not None
        kinds = {str(value) for value in x.grad.tolist()}
        print(f"torch {torch.__version__}: gradients of {function.__name__} at NaN are {', '.join(sorted(kinds))}")
        is_split.append(len(kinds) > 1)
    return not any(is_split)


if __name__ == "__main__":
    sys.exit(main())
