"""The gradient of `stft` with respect to an expanded leaf has other numbers.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager's pieces of `stft` end in `as_strided`, whose gradient gives elements that share a place the
mean of theirs. The pieces that are traced end in `unfold`, which does not.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 4, 1, window=torch.ones(4), center=False, return_complex=True).real


def main() -> int:
    found = []
    for call in (f, torch.compile(f, backend="aot_eager")):
        leaf = torch.ones(1).expand(6).requires_grad_()
        call(leaf).sum().backward()
        assert leaf.grad is not None
        found.append([round(number, 3) for number in leaf.grad.tolist()])
    print(f"torch {torch.__version__}: eager {found[0]}, compiled {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
