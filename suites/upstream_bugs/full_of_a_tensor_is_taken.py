"""`full` refuses a tensor that requires grad as its number in eager, and takes it compiled.

Kind: missing error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(value: torch.Tensor) -> torch.Tensor:
    return torch.full((2,), value)  # type: ignore[call-overload, no-any-return]


def result(function: object, value: torch.Tensor) -> str:
    try:
        return str(function(value).tolist())  # type: ignore[operator]
    except TypeError:
        return "a TypeError"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    value = torch.ones((), requires_grad=True)
    eager, compiled = result(f, value), result(torch.compile(f, backend=backend), value)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "a TypeError" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
