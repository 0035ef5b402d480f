"""`softmax` of integers is 0 everywhere. Eager refuses integers.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The decomposition computes in float, and the result is cast to integers.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.arange(3)
    eager, compiled = result(f, x), result(torch.compile(f, backend=backend), x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
