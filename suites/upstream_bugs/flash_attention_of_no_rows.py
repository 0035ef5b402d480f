"""The CPU's kernel of flash attention ends the process with SIGFPE where there are no rows; it divides by their number.

Kind: error. Backends: eager itself. Seen with torch 2.13.0 (CPU, Python 3.11).
`scaled_dot_product_attention` asks for rows first. A graph that was recorded below it does not.
"""

import subprocess
import sys

import torch

PROGRAM = """
import torch
none = torch.ones(2, 2, 0, 4)
print(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(none, none, none)[0].shape)
"""


def main() -> int:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    print(f"torch {torch.__version__}: exit status {ran.returncode}, output {ran.stdout.strip()!r}")
    return 0 if ran.returncode < 0 else 1


if __name__ == "__main__":
    sys.exit(main())
