"""A module that counts its calls in a buffer and multiplies by the count: the gradient is that of the next count.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Backward computes the count again, from the buffer that forward has written by then. Values are right, nothing raises.
"""

import sys

import torch


class Counter(torch.nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.weight * self.calls


def gradient(backend: str) -> object:
    module = Counter()
    torch.compile(module, backend=backend)(torch.ones(3)).sum().backward()
    return module.weight.grad


def main() -> int:
    eager, compiled = gradient("eager"), gradient("aot_eager")
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if str(eager) != str(compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
