"""`round(n, -1)` of an integer that changes from call to call is the integer itself.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + round(n, -1)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled = torch.compile(f, backend=backend, dynamic=True)
    eager, ours = f(torch.zeros(1), 123).item(), compiled(torch.zeros(1), 123).item()
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if eager != ours else 1


if __name__ == "__main__":
    sys.exit(main())
