"""`module.double()` after the first call is not noticed: the graph for float32 reads the new memory.

Kind: wrong result. Backends: inductor. Seen with torch 2.11.0 (CPU, Python 3.11). Mended in torch 2.13.
Dynamo does not look again at the dtype, the sizes and the strides of a parameter.
"""

import sys

import torch


def main() -> int:
    module, index = torch.nn.Embedding(4, 4), torch.tensor([0, 3])
    compiled = torch.compile(module, backend="inductor")
    compiled(index)
    module.double()
    eager, found = module(index), compiled(index)
    print(f"torch {torch.__version__}: eager {eager.dtype} {eager}, compiled {found.dtype} {found}")
    return 0 if found.dtype != eager.dtype or not torch.allclose(found, eager) else 1


if __name__ == "__main__":
    sys.exit(main())
