"""Whole backwards over two processes are eager's: hooks that communicate, DDP, FSDP2."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assay.suites.distributed.whole_backward import WAYS


@pytest.mark.parametrize("way", WAYS)
def test_whole_backward_over_two_processes_is_eagers(way: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    check = ["-m", "assay.suites.distributed.whole_backward", "--way", way]
    done = subprocess.run([*launcher, *check], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert done.stdout.count(f"{way} is as eager") == 2
