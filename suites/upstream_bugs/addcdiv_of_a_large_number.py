"""addcdiv takes a value that no float32 holds, and gives infinities, where eager refuses it.

Kind: missing error.
Backends: eager, aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11). addcmul is refused as in eager.
"""

import sys

import torch


def main() -> int:
    x = torch.ones(3)
    said = []
    for function in (torch.addcdiv, torch.compile(lambda *a, **k: torch.addcdiv(*a, **k), backend="eager")):
        try:
            said.append(str(function(x, x, x, value=1e300)))
        except RuntimeError as error:
            said.append(type(error).__name__)
    print(f"torch {torch.__version__}: eager {said[0]}, compiled {said[1]}")
    return int(said[0] == said[1])


if __name__ == "__main__":
    sys.exit(main())
