"""A method of a class appends to a list of the scope around it: compiled, the list stays empty.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The object is made in the compiled function. Known as pytorch/pytorch#197896.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    seen: list[int] = []

    class Counter:
        def count(self) -> None:
            seen.append(1)

    def f(x: torch.Tensor) -> torch.Tensor:
        Counter().count()
        return x + 1

    compiled(f)(torch.ones(1))
    return seen


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
