"""The parts that unsafe_chunk makes of an empty tensor are the tensor itself, which eager's are not.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
pytorch/pytorch#147277 is of the same call.
"""

import sys

import torch


def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.unsafe_chunk(x, 2)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.ones(0)
    eager, ours = f(x)[0] is x, torch.compile(f, backend=backend)(x)[0] is x
    print(f"torch {torch.__version__}, {backend}: the first part is the tensor: eager {eager}, compiled {ours}")
    return int(eager == ours)


if __name__ == "__main__":
    sys.exit(main())
