"""squeeze_ of a written input with gradients recorded: the input is another place of its storage afterwards.

Kind: wrong form. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
The caller's tensor has offset 0 where it had 1.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    x.add_(x).squeeze_()


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(8.0)[1:7].view(2, 3).t(),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    (ours,), (theirs,) = inputs(), inputs()
    torch.compile(f, backend=backend)(ours), f(theirs)
    offsets = theirs.storage_offset(), ours.storage_offset()
    print(f"torch {torch.__version__}, {backend}: offset of the input: eager {offsets[0]}, compiled {offsets[1]}")
    return 0 if offsets[0] != offsets[1] else 1


if __name__ == "__main__":
    sys.exit(main())
