"""A `scan` whose step keeps its new state for backward is refused; it should train.

Kind: error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The new state is a result of the step, and is also what the derivative of `tanh` reads. The step's forward returns it
twice, which torch takes for an alias. `capture_scalar_outputs` is on, without which Inductor takes no `scan` on a CPU.
"""

import sys

import torch
import torch._dynamo
from torch._higher_order_ops import scan


def f(c: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
    return scan(lambda c, x: ((c + x).tanh(), c * 2), c, xs)[0].sum()


def main() -> int:
    found: list[torch.Tensor | None] = []
    for function in (f, torch.compile(f, backend="inductor")):
        c, xs = torch.ones(3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
        try:
            with torch._dynamo.config.patch(capture_scalar_outputs=True):
                function(c, xs).backward()
        except Exception as error:
            refusal = next(line for line in str(error).splitlines() if "alias" in line)
            print(f"torch {torch.__version__}: inductor raises {refusal!r}, eager gives {found[0]}")
            return 0
        found.append(c.grad)
    print(f"torch {torch.__version__}: eager gives {found[0]}, inductor {found[1]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
