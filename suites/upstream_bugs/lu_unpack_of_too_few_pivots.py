"""`torch.lu_unpack` ends the process where there are fewer pivots than rows: it reads past the end of them.

Kind: error. Backends: eager itself. Seen with torch 2.13.0 (CPU, Python 3.11).
The values of pivots are checked, their number is not.
"""

import subprocess
import sys

import torch

UNPACK = "import torch; torch.lu_unpack(torch.eye(3), torch.zeros(0, dtype=torch.int32))"


def main() -> int:
    done = subprocess.run([sys.executable, "-c", UNPACK], capture_output=True)
    print(f"torch {torch.__version__}: exit code {done.returncode}")
    return 0 if done.returncode < 0 else 1


if __name__ == "__main__":
    sys.exit(main())
