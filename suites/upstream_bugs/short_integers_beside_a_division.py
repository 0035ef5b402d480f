"""Triton's assembler adds 0 where it is to add -1 to 16-bit numbers, two at once, and moves one behind a call.

Kind: wrong result. Needs no GPU. Seen with torch 2.13.0, Triton 3.7.1 (ptxas 12.8.93, for sm_90) and 3.6 (an H100).
LLVM asks of `(b != 0) & (b != -1)` whether b - 1 is less than -2 without a sign. A division in 16 bits is a call, and
from what is compared behind one nothing is subtracted: the remainder of 1 by -2 was 0.
"""

import re
import subprocess
import sys
import tempfile

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def kernel(x, y, o):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    n = tl.arange(0, 256)
    a, b = tl.load(x + 2 * n), tl.load(y + 2 * n)
    tl.store(o + n, tl.where(b == -1, 0, a % tl.where((b != 0) & (b != -1), b, 1)).to(tl.int16))


def main() -> int:
    source = ASTSource(kernel, dict.fromkeys("xyo", "*i16"), {})
    made = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 1})
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(made.asm["cubin"])
        text = subprocess.check_output([triton.knobs.nvidia.nvdisasm.path, file.name], text=True)
    added = sorted(set(re.findall(r"VIADD\.16x2 R\d+, R\d+(?:\.reuse)?, (\w+)", text)))
    print(f"torch {torch.__version__}, Triton {triton.__version__}: what is to add -1 adds {' or '.join(added)}")
    return 0 if "0x0" in added else 1


if __name__ == "__main__":
    sys.exit(main())
