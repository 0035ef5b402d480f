"""A custom operator that writes two parts of one memory, each through an alias of its own: one write is lost.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager exchanges the halves of `x`. Compiled, each alias has a copy of all of `x`, into which one half is written, and
the second copy is written back over the first: the first half is not written.
"""

import sys

import torch


@torch.library.custom_op("assay_upstream::exchange", mutates_args=("x", "y"))
def exchange(x: torch.Tensor, y: torch.Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


def f(x: torch.Tensor) -> None:
    exchange(x.detach()[:2], x.detach()[2:])


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    found = []
    for function in (f, torch.compile(f, backend=backend)):
        x = torch.arange(4.0)
        function(x)
        found.append(x.tolist())
    print(f"torch {torch.__version__}, {backend}: the input: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
