"""A float that changes to 0.0 and divides is infinity in the graph. Python raises ZeroDivisionError.

Kind: missing error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
So do functions of `math` that refuse their argument, as `math.log2(0.0)`.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    f = compiled(lambda x, y: x * (1 / y))
    f(torch.ones(1), 2.0), f(torch.ones(1), 3.0)
    try:
        return f(torch.ones(1), 0.0)
    except ZeroDivisionError:
        return "ZeroDivisionError"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
