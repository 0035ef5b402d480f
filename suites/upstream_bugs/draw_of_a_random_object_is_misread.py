"""A number that a `random.Random` draws in a compiled function is -8e34, where it is 0.24.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Dynamo declares the draw as float32 and passes it as float64, whose bits the kernel takes for float32.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    draws = random.Random(3)
    f = compiled(lambda x: x * draws.random())
    return f(torch.ones(1)).item()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
