"""A parameter that is unfrozen after a call gets no gradient: the guard on requires_grad is passed over.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.11.0 (CPU, Python 3.11). Mended in torch 2.13.
"""

import sys

import torch


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    compiled = torch.compile(model, backend=backend)
    compiled(torch.ones(2))
    model.requires_grad_(True)
    found = compiled(torch.ones(2)).requires_grad
    print(f"torch {torch.__version__}, {backend}: the result of an unfrozen layer has requires_grad={found}")
    return 0 if not found else 1


if __name__ == "__main__":
    sys.exit(main())
