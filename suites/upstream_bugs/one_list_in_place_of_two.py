"""Two lists that are one list in a later call: what is appended to one is not seen in the other.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
No guard asks whether two arguments are one object. With a `x is y` in control flow, known as pytorch/pytorch#196173.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    def f(a: list[int], b: list[int], x: torch.Tensor) -> torch.Tensor:
        a.append(5)
        return x * len(b)

    g, same = compiled(f), [1]
    g([1], [1], torch.ones(1))
    return g(same, same, torch.ones(1))


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
