"""An update in place, scaled by a number that is read out of a tensor, goes wrong from its second call on.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
pytorch/pytorch#185382.
"""

import sys

import torch


def step(p: torch.Tensor, g: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, count: torch.Tensor) -> None:
    count.add_(1)
    mean.mul_(0.9).add_(g, alpha=0.1)
    square.mul_(0.999).addcmul_(g, g, value=0.001)
    steps = count.item()
    p.addcdiv_(mean, (square.sqrt() / (1 - 0.999**steps) ** 0.5).add_(1e-8), value=-0.001 / (1 - 0.9**steps))


def f(p: torch.Tensor) -> torch.Tensor:
    p, g, mean, square, count = p.clone(), p * 2, torch.zeros(4), torch.zeros(4), torch.zeros(())
    for _ in range(6):
        step(p, g, mean, square, count)
    return p


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    given = torch.tensor([1.0, -2.0, 3.0, 0.5])
    eager, ours = f(given), torch.compile(f, backend=backend)(given)
    print(f"torch {torch.__version__}, {backend}: eager {eager.tolist()}, compiled {ours.tolist()}")
    return int(torch.allclose(eager, ours, rtol=1e-5))


if __name__ == "__main__":
    sys.exit(main())
