"""A leaf is squeezed in place where gradients are off: a later compile of the function raises an AssertionError.

Kind: error. Backends: eager, and all behind Dynamo. Seen with torch 2.13.0 (CPU, Python 3.11). Dynamo guards on the
shape that the function leaves, which the guard then does not find.
"""

import sys

import torch


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.conj().squeeze_()  # x itself, as it is real
    return w * 2


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled, found = torch.compile(f, backend=backend), "no error"
    x, w = torch.ones(3, 1, 4, requires_grad=True), torch.ones(2, requires_grad=True)
    try:
        for given in (x, x, torch.ones(3, 1, 4, requires_grad=True)):
            compiled(given, w)
        with torch.no_grad():
            compiled(torch.ones(3, 1, 4, requires_grad=True), w)
    except AssertionError as error:
        found = str(error)[:60]
    print(f"torch {torch.__version__}, {backend}: {found}")
    return int(found == "no error")


if __name__ == "__main__":
    sys.exit(main())
