"""Functions of CUDA's library take a number below the least normal one for 0: the hyperbolic tangent of 1e-39 is 0.

Kind: wrong result. Backends: inductor, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12, Triton 3.6).
Triton compiles the library to flush such numbers unless it is told otherwise, and Inductor does not tell it. `hypot`,
`tanh` and `asinh` of 1e-39 are 0, where eager gives 1.4e-39, 1e-39 and 1e-39; additions and products are not changed.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x = torch.full((64,), 1e-39, device="cuda")
    found = [function(x)[0].item() for function in (f, torch.compile(f, backend=backend))]
    print(f"torch {torch.__version__}, {backend}: tanh(1e-39) is {found[1]}, in eager {found[0]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
