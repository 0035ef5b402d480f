"""The gradient of a 1x1 convolution's weights writes beyond its memory: channels last, steps (1, 2). The process dies.

Kind: error.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX2, Python 3.11). Rows are taken one by one, columns by twos.
Shows only with AVX2 and without AVX-512, where oneDNN computes it.
"""

import subprocess
import sys

PROGRAM = """
import torch
x = torch.randn(2, 3, 5, 6).to(memory_format=torch.channels_last)
w = torch.randn(4, 3, 1, 1, requires_grad=True)
for _ in range(200):
    torch.nn.functional.conv2d(x, w, stride=(1, 2)).sum().backward()
    others = [torch.empty(length) for length in range(1, 60)]
"""


def main() -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    print(f"the process ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return int(done.returncode == 0)


if __name__ == "__main__":
    sys.exit(main())
