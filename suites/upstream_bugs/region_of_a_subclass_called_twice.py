"""A nested_compile_region that is called twice with a tensor subclass has no rule for it; eager runs it.

Kind: error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11) and 2.11.0.
"""

import sys

import torch
from torch.testing._internal.two_tensor import TwoTensor

region = torch.compiler.nested_compile_region(lambda x: x.sin() * 2)


def f(x: torch.Tensor) -> torch.Tensor:
    return region(x) + region(x + 1)


def main() -> int:
    x = TwoTensor(torch.ones(3), torch.zeros(3))
    eager = f(x)
    try:
        compiled = torch.compile(f, backend="eager")(x)
    except Exception as error:
        print(f"torch {torch.__version__}: eager gives {tuple(eager.shape)}, Dynamo raises {type(error).__name__}")
        return 0
    print(f"torch {torch.__version__}: eager gives {tuple(eager.shape)}, Dynamo {tuple(compiled.shape)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
