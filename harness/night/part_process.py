"""The process of a part: `assay`, told to end when the night that started it dies.

    python -m assay.harness.night.part_process NIGHT ARGUMENTS

NIGHT is the number of the night's process. Without this, a part would go on for minutes behind a night that was killed.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

DEATH_OF_PARENT = 1
"""The number that Linux's `prctl` has for it (`PR_SET_PDEATHSIG`)."""


def end_with(parent: int) -> None:
    """Asks for SIGTERM, at which a report is written, once the parent is dead; ends at once if it is dead already."""
    ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv[:] = ["assay", *sys.argv[2:]]
    runpy.run_module("assay", run_name="__main__")
