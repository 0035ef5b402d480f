"""A full backward hook on a compiled module is never called: its gradients are neither seen nor replaced.

Kind: wrong result. Backends: all, eager too. Seen with torch 2.13.0 (CPU, Python 3.11).
The wrapper keeps the hook, and sets on the module inside that it is a full one: it never finds it.
"""

import sys
from typing import Any

import torch
from torch import nn


def main() -> int:
    calls: list[str] = []

    def hook(module: nn.Module, made: Any, given: Any) -> None:
        calls.append("called")

    found = []
    for wrap in (lambda module: module, lambda module: torch.compile(module, backend="eager")):
        module: Any = wrap(nn.Linear(2, 2))
        module.register_full_backward_hook(hook)
        calls.clear()
        module(torch.ones(1, 2, requires_grad=True)).sum().backward()
        found.append(len(calls))
    print(f"torch {torch.__version__}: the hook is called {found[0]} times; on the compiled module {found[1]} times")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
