"""`unsqueeze_` of the conjugate of a real tensor, which is the tensor itself, is an internal error.

Kind: error. Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = x.conj()
    y.unsqueeze_(1)
    return y + 1


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]!r}"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled = torch.compile(f, backend=backend)
    eager, ours = result(f, torch.arange(3.0)), result(compiled, torch.arange(3.0))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if eager != ours else 1


if __name__ == "__main__":
    sys.exit(main())
