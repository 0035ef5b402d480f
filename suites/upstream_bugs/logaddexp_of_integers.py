"""`logaddexp` of integers gives integers: of 0 and 0 it is 0, and not the logarithm of 2. Eager refuses them.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, x)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.zeros(2, dtype=torch.int64)
    eager, compiled = result(f, x), result(torch.compile(f, backend=backend), x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
