"""A leaf that only an undifferentiated output depends on gets a gradient of zeros where eager leaves None.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
None is not zero: an optimizer skips a parameter whose gradient is None, and applies weight decay and momentum to one
whose gradient is zeros.
"""

import sys

import torch


def f(x: torch.Tensor, used: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * used, x * unused


def gradient(function: object) -> torch.Tensor | None:
    used, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    function(torch.ones(3), used, unused)[0].sum().backward()  # type: ignore[operator]
    return unused.grad


def main() -> int:
    eager, compiled = gradient(f), gradient(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager is None and compiled is not None else 1


if __name__ == "__main__":
    sys.exit(main())
