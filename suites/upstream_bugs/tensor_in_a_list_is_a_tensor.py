"""`x in [x]` of a tensor is a tensor of comparisons: Python asks first whether they are one object.

Kind: wrong result. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
An object that is not equal to itself is not found in a list that holds it.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    return compiled(lambda x: x in [x])(torch.ones(2))


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
