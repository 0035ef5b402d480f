"""What is written into a detached input with gradients: the gradient is lost, without an error.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
In eager the alias requires grad from the write on. Compiled, what is returned is a leaf that leads nowhere.
"""

import sys

import torch


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    alias = x.detach()
    alias.mul_(w)
    return alias[:1]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    found = []
    for function in (f, torch.compile(f, backend=backend)):
        w = torch.ones(3, requires_grad=True)
        function(torch.ones(3), w).sum().backward()
        found.append(None if w.grad is None else w.grad.tolist())
    print(f"torch {torch.__version__}, {backend}: gradient of w: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
