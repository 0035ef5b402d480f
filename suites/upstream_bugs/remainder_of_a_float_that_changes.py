"""The remainder of a float that changes is an internal error: the analysis of references knows no `python_mod`.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    f = compiled(lambda x, y: x * (y % 1))
    try:
        return [f(torch.ones(1), y).item() for y in (2.5, 3.25)]
    except Exception as error:
        return type(error).__name__


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
