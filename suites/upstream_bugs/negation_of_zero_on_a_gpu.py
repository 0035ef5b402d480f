"""The negation of 0.0 is 0.0, and not -0.0: one over it has the other sign.

Kind: wrong result. Backends: inductor, on an NVIDIA GPU. Seen with torch 2.11.0 (an H100, Python 3.12, Triton 3.6).
It emits Triton's unary minus, which subtracts from 0; `1 / -x` of a zero is then +inf where eager gives -inf.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return -x


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    if not torch.cuda.is_available():
        print("this is about an NVIDIA GPU, and there is none")
        return 1
    x = torch.zeros(4, device="cuda")
    found = [function(x).signbit().tolist() for function in (f, torch.compile(f, backend=backend))]
    print(f"torch {torch.__version__}, {backend}: -0.0 has the signs {found[1]}, in eager {found[0]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
