"""`aot_function` ends the process where a program fills a storage that was freed, reads it and frees it again.

Kind: error. Backends: aot_function. Seen with torch 2.13.0 (CPU, Python 3.11).
The write stays in the graph behind the call that frees the storage, and copies into memory that is gone. It runs in
a process of its own.
"""

import signal
import subprocess
import sys

import torch

PROGRAM = """
import torch
from functorch.compile import aot_function, nop
resize = torch.ops.inductor.resize_storage_bytes_.default
def f(x):
    resize(x, 32)
    x.copy_(torch.ones(8))
    y = x.sin()
    resize(x, 0)
    return y
x = torch.zeros(8)
x.untyped_storage().resize_(0)
print(aot_function(f, nop, keep_inference_input_mutations=True)(x))
"""


def main() -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    print(f"torch {torch.__version__}: exit status {done.returncode} {done.stdout}")
    return 0 if done.returncode in (-signal.SIGSEGV, -signal.SIGABRT) else 1


if __name__ == "__main__":
    sys.exit(main())
