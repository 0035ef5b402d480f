"""`linspace` of bytes up to 1000 wraps. Eager refuses it.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(n: int) -> torch.Tensor:
    return torch.linspace(0, n, 5, dtype=torch.uint8)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    n = 1000
    eager, compiled = result(f, n), result(torch.compile(f, backend=backend), n)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
