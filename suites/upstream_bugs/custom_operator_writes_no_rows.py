"""A custom operator that writes no rows of an input without elements raises ZeroDivisionError.

Kind: error. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11) and 2.11.0.
The number of rows that a view holds is told from its place in the storage, by a division by a stride that is zero.
"""

import sys

import torch


@torch.library.custom_op("upstream_bugs::increment_rows", mutates_args=("x",))
def increment_rows(x: torch.Tensor) -> None:
    x.add_(1)


increment_rows.register_fake(lambda x: None)


def f(x: torch.Tensor) -> torch.Tensor:
    torch.ops.upstream_bugs.increment_rows(x[:0])
    return x + 1


def main() -> int:
    given = torch.ones(0).expand(1, -1)
    eager = tuple(f(given).shape)
    try:
        found: object = tuple(torch.compile(f, backend="aot_eager")(given).shape)
    except Exception as error:
        found = next(line for line in str(error).splitlines() if "ZeroDivision" in line)
    print(f"torch {torch.__version__}: eager {eager}, compiled {found}")
    return 0 if found != eager else 1


if __name__ == "__main__":
    sys.exit(main())
