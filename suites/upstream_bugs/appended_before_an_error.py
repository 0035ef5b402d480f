"""What was appended to a list before a kernel raises is not in it.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The effects on Python objects are applied behind the graph.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    seen = []

    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x[i]

    try:
        compiled(f)(torch.ones(1), torch.tensor([5]))
    except Exception:
        return seen
    return None


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
