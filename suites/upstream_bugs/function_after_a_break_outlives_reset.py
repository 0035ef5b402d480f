"""What is compiled behind a graph break stays in the module's globals when its model is gone and Dynamo was reset.

Kind: wrong result. Backends: all, as eager. Seen with torch 2.11.0 and 2.13.0 (CPU, Python 3.11 and 3.12).
"""

import gc
import sys

import torch


class Broken(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2


def left(backend: str) -> int:
    """How many compiled functions there are, after one more model."""
    torch.compile(Broken(), backend=backend)(torch.ones(2))
    torch._dynamo.reset()
    gc.collect()
    return sum(name.startswith("__compiled_fn") for name in globals())


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    found = [left(backend) for _ in range(3)]
    print(f"torch {torch.__version__}, {backend}: compiled functions after one, two and three models: {found}")
    return 0 if found[2] > found[0] else 1


if __name__ == "__main__":
    sys.exit(main())
