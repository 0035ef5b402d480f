"""After an error inside autocast, later calls of a layer multiply by the weight that it had before.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11). Dynamo's graph enters and leaves autocast by two calls. An
error between them leaves it entered, so that its casts of weights are kept. Without a compiler the error leaves it.
"""

import contextlib
import sys
from collections.abc import Callable

import torch

layer = torch.nn.Linear(2, 2, bias=False)


def rows_of_layer(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x)[rows].relu()


def after_an_error(function: Callable[..., torch.Tensor]) -> float:
    layer.weight.data.fill_(1.0)
    with contextlib.suppress(IndexError):
        function(torch.ones(2, 2), torch.tensor([7]))
    layer.weight.data.fill_(2.0)
    return rows_of_layer(torch.ones(2, 2), torch.tensor([0])).sum().item()


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eagers, ours = after_an_error(rows_of_layer), after_an_error(torch.compile(rows_of_layer, backend=backend))
    print(f"torch {torch.__version__}, {backend}: {ours}, eager {eagers}")
    return int(ours == eagers)


if __name__ == "__main__":
    sys.exit(main())
