"""`python -m assay` and the command `assay`."""

from __future__ import annotations

import os
import signal
import sys

from assay.harness.cli.front import front


def main() -> None:
    """Runs the command line; modules of the working directory can be named on it, as with `python -m`.

    SIGTERM, by which a time limit ends a run, interrupts it as Ctrl-C does: the report is still written.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    front(prog_name="assay")


if __name__ == "__main__":
    main()
