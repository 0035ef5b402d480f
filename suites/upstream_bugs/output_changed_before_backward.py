"""Logits that the user changes after the loss and before its backward: backward refuses to run.

Kind: error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Log-softmax saves its own result, so eager does not mind what becomes of the logits. The partition keeps the logits
instead, to compute the logarithms again: RuntimeError, a variable has been modified by an inplace operation.
"""

import sys

import torch
from torch import Tensor


def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    logits = x @ w
    return logits, torch.nn.functional.cross_entropy(logits, torch.arange(4))


def gradient(backend: str) -> str:
    torch._dynamo.reset()
    w = torch.eye(4).requires_grad_()
    logits, loss = torch.compile(f, backend=backend)(torch.arange(16.0).view(4, 4) / 9, w)
    with torch.no_grad():
        logits.mul_(3)
    try:
        loss.backward()
    except RuntimeError as error:
        return type(error).__name__
    return str(round(w.grad.abs().sum().item(), 4))  # type: ignore[union-attr]


def main() -> int:
    eager, compiled = gradient("eager"), gradient("inductor")
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if compiled != eager else 1


if __name__ == "__main__":
    sys.exit(main())
