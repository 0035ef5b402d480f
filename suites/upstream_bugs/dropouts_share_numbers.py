"""Two dropouts in a row share their random numbers where a thread takes elements in pairs, as in float64.

Kind: wrong result.
Backends: eager, on an NVIDIA GPU. Seen with torch 2.11.0 (CUDA 13.0, H200, Python 3.12). Each pair uses a call of the
generator, and half as many are reserved: the second half of one mask is the first half of the next. So it is in other
dtypes where the number of elements is even and no multiple of four.
"""

import sys

import torch


def main() -> int:
    torch.manual_seed(0)
    x = torch.ones(1 << 22, dtype=torch.float64, device="cuda")
    first, second = (torch.nn.functional.dropout(x, 0.5) != 0 for _ in range(2))
    properties = torch.cuda.get_device_properties(0)
    threads = properties.multi_processor_count * properties.max_threads_per_multi_processor
    reserved = 2 * threads * ((x.numel() - 1) // (4 * threads) + 1)
    shared = (first[reserved:] == second[:-reserved]).double().mean().item()
    print(f"torch {torch.__version__}: of the second half of a mask {shared:.0%} are the next one's first half")
    return int(shared < 1)


if __name__ == "__main__":
    sys.exit(main())
