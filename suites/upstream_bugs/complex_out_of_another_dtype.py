"""`torch.complex(real, imag, out=out)` writes an `out` of another dtype, which eager refuses.

Kind: missing error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Eager raises RuntimeError for float64 parts and a complex64 result; compiled, the result is rounded in silence.
"""

import sys

import torch


def f(real: torch.Tensor, imag: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.complex(real, imag, out=out)


def told(call: object) -> str:
    parts = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    try:
        return str(call(*parts, torch.ones(2, dtype=torch.complex64)).dtype)  # type: ignore[operator]
    except RuntimeError:
        return "RuntimeError"


def main() -> int:
    eager, compiled = told(f), told(torch.compile(f, backend="aot_eager"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager == "RuntimeError" and compiled != eager else 1


if __name__ == "__main__":
    sys.exit(main())
