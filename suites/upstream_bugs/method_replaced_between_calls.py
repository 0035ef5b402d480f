"""A method that is replaced in its class between two calls is not noticed.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    class Scale:
        def by(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    scale = Scale()
    f = compiled(lambda x: scale.by(x))
    f(torch.ones(1))
    Scale.by = lambda self, x: x * 10  # type: ignore[method-assign]
    return f(torch.ones(1))


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
