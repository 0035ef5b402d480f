"""The least integer divided by -1 with `rounding_mode="trunc"` ends the process with SIGFPE.

Kind: error. Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11).
The processor's division traps on the quotient that has no integer; `//` wraps, as NumPy does. Here
it runs in a process of its own.
"""

import signal
import subprocess
import sys

import torch

PROGRAM = """
import torch
print(torch.div(torch.tensor([-(2**63), 5]), torch.tensor([-1, -2]), rounding_mode="trunc"))
"""


def main() -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    print(f"torch {torch.__version__}: exit status {done.returncode} {done.stdout}")
    return 0 if done.returncode == -signal.SIGFPE else 1


if __name__ == "__main__":
    sys.exit(main())
