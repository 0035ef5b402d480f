"""Constants beside a float that changes are combined: `y * 1e308 * 10` is NaN for 0.0.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The algebra of symbols takes products and sums of floats for associative: so `y + 1e16 - 1e16` is y.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    f = compiled(lambda x, y: x * (y * 1e308 * 10))
    return [f(torch.ones(1), y).item() for y in (1e-3, 2e-3, 0.0)]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
