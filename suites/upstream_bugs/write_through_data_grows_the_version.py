"""A write through .data leaves the input's version in eager, and grows it compiled, from the second call on.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Autograd then refuses a backward that eager runs.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    x.data[2] = 1


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(6.0)[1:],)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    (x,), (y,) = inputs(), inputs()
    compiled = torch.compile(f, backend=backend)
    for _ in range(3):
        compiled(x), f(y)
    print(f"torch {torch.__version__}, {backend}: version after three calls: eager {y._version}, compiled {x._version}")
    return 0 if x._version != y._version else 1


if __name__ == "__main__":
    sys.exit(main())
