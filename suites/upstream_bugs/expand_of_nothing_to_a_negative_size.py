"""Eager expands a tensor without elements to a negative size. Compiled, the same call raises.

Kind: error. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager is the one that is wrong: where there are elements it refuses the size. No operator can copy what it makes.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.expand(-2, 0, 4)


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.zeros(0, 4),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager = f(*inputs()).shape
    try:
        compiled = str(torch.compile(f, backend=backend)(*inputs()).shape)
    except Exception as error:
        compiled = type(error).__name__
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if compiled != str(eager) else 1


if __name__ == "__main__":
    sys.exit(main())
