"""A generator that a loop leaves early never reaches its `finally`.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    seen = []

    def numbers() -> Iterator[int]:
        try:
            yield from (1, 2)
        finally:
            seen.append("closed")

    def f(x: torch.Tensor) -> torch.Tensor:
        for n in numbers():
            return x + n
        return x

    compiled(f)(torch.ones(1))
    return seen


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
