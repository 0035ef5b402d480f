"""`index_select` by a negative number counts from the end. Eager refuses it.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
It becomes indexing, which takes negative numbers. Known as pytorch/pytorch#169779.
"""

import sys

import torch


def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.index_select(0, i)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, i = torch.arange(3.0), torch.tensor([-1])
    eager, compiled = result(f, x, i), result(torch.compile(f, backend=backend), x, i)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
