"""Programs of `DTensor`s over two processes are eager's, and compiled."""

from __future__ import annotations

import subprocess
import sys


def test_dtensors_over_two_processes_are_eagers() -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = [*launcher, "-m", "assay.suites.distributed.dtensors"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert done.stdout.count(": as eager") == 12
