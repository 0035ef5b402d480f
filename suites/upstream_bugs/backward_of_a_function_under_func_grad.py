"""`torch.func.grad` of a user's autograd.Function ignores its backward: the gradient is that of its forward.

Kind: wrong result.
Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). pytorch#193279.
"""

import sys
from typing import Any

import torch


def outcome(compiled: Any) -> object:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x.sin()

        setup_context = staticmethod(lambda ctx, inputs, output: None)

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            return slope * 100

    def loss(x: Any) -> Any:
        return Sine.apply(x).sum()

    return compiled(torch.func.grad(loss))(torch.ones(2))


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
