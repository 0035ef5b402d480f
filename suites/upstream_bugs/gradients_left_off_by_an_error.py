"""An operator that raises within `no_grad` leaves gradients off for all that follows: the graph switches them on again.

Kind: wrong result. Backends: eager (Dynamo alone). Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        chosen = x.index_select(0, places)
    return chosen + 1


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    compiled = torch.compile(f, backend=backend)
    x = torch.ones(3)
    compiled(x, torch.tensor([0]))
    for function in (f, compiled):
        try:
            function(x, torch.tensor([7]))
        except IndexError:
            print(f"torch {torch.__version__}, {backend}: gradients are on: {torch.is_grad_enabled()}")
    return int(torch.is_grad_enabled())


if __name__ == "__main__":
    sys.exit(main())
