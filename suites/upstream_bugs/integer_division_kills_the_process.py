"""The least integer divided by -1 ends the process with SIGFPE: eager `//`, `fmod` and `div` with a rounding mode.

Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11).
The processor's division traps on the quotient that has no integer; NumPy wraps. It runs in a process of its own here.
"""

import signal
import subprocess
import sys

import torch

PROGRAM = "import torch; print(torch.tensor([-(2**63), 5]) // torch.tensor([-1, -2]))"


def main() -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    print(f"torch {torch.__version__}: exit status {done.returncode} {done.stdout}")
    return 0 if done.returncode == -signal.SIGFPE else 1


if __name__ == "__main__":
    sys.exit(main())
