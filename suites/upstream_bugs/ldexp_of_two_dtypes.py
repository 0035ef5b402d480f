"""ldexp of halves by float32 numbers is in halves, and that of flags by halves in float32.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager promotes both (pytorch/pytorch#197091).
"""

import sys

import torch


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ldexp(x, y)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    half, single, flags = torch.ones(3).half(), torch.ones(3), torch.ones(3, dtype=torch.bool)
    compiled = torch.compile(f, backend=backend)
    eager = f(half, single).dtype, f(flags, half).dtype
    ours = compiled(half, single).dtype, compiled(flags, half).dtype
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return int(eager == ours)


if __name__ == "__main__":
    sys.exit(main())
