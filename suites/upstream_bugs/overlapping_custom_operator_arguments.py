"""A custom operator that is given one tensor in two slots, one of them written, reads the old value.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager's operator writes `x` and then reads `y`, which is the same tensor. Compiled, `x` is replaced by a copy, so the
read of `y` sees what was there before the write.
"""

import sys

import torch


@torch.library.custom_op("assay_upstream::write_then_read", mutates_args=("x",))
def write_then_read(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


@write_then_read.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y)


def f(x: torch.Tensor) -> torch.Tensor:
    return write_then_read(x, x)


def main() -> int:
    eager, compiled = f(torch.zeros(3)), torch.compile(f, backend="aot_eager")(torch.zeros(3))
    print(f"torch {torch.__version__}: eager {eager.tolist()}, compiled {compiled.tolist()}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
