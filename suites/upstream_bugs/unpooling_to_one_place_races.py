"""max_unpool2d of several numbers that go to one place: which one stays depends on how two threads meet.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU, two threads, Python 3.11); with one thread the last number stays.
The threads share the numbers of one image, so that a number from the first half may be written last.
"""

import sys

import torch

RUNS = 200_000
"""How many calls are made at most, until one differs from the others."""


def main() -> int:
    threads = torch.get_num_threads()
    x, places = torch.arange(36.0).view(1, 1, 6, 6), torch.zeros(1, 1, 6, 6, dtype=torch.int64)
    torch.set_num_threads(2)
    found = set[float]()
    for _ in range(RUNS):
        found.add(torch.nn.functional.max_unpool2d(x, places, [2, 2])[0, 0, 0, 0].item())
        if len(found) > 1:
            break
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}: by equal calls the first place holds {sorted(found)}")
    return int(len(found) == 1)


if __name__ == "__main__":
    sys.exit(main())
