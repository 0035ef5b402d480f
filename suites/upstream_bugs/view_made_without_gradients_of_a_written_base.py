"""A call that gives a view made in no_grad, whose base is written, raises, where eager's call gives both.

Kind: error.
Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). Eager refuses a backward through the view.
"""

import sys

import torch


def written(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    base = x * 1
    with torch.no_grad():
        seen = base.view_as(base)
    base.mul_(2)
    return seen, base


def main() -> int:
    x = torch.ones(3, requires_grad=True)
    torch._dynamo.reset()
    try:
        said = str(torch.compile(written, backend="aot_eager")(x)[1].tolist())
    except Exception as error:
        said = type(error).__name__
    print(f"torch {torch.__version__}: eager {written(x)[1].tolist()}, compiled {said}")
    return int(said == str(written(x)[1].tolist()))


if __name__ == "__main__":
    sys.exit(main())
