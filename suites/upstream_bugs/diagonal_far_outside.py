"""`diagonal` with an offset that changes to one far outside fails, where eager gives a tensor without elements.

Kind: error. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.diagonal(n) * 2


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]!r}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled = torch.compile(f, backend=backend)
    for arguments in ((torch.ones(3, 3), -1), (torch.ones(3, 3), 1), (torch.ones(3, 3), -(1 << 62))):
        eager, ours = result(f, *arguments), result(compiled, *arguments)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if eager != ours else 1


if __name__ == "__main__":
    sys.exit(main())
