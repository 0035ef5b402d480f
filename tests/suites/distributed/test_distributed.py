"""Layers that are compiled one by one train over two processes as eager layers do: DDP, FSDP2, tensor parallel."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from assay.suites.distributed.check import differences
from assay.suites.distributed.training import WAYS, shared


@pytest.mark.parametrize("way", WAYS)
def test_training_over_two_processes_is_eagers(way: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    check = ["-m", "assay.suites.distributed.check", "--way", way, "--backend", "assay"]
    done = subprocess.run([*launcher, *check], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert done.stdout.count(f"{way} are as eager") == 2


def test_a_gradient_that_is_off_is_told() -> None:
    eager = [{"loss": torch.ones(()), "weight": torch.ones(3)}]
    ours = [{"loss": torch.ones(()), "weight": torch.tensor([1.0, 1.0, 1.1])}]
    assert not list(differences("ddp", eager, eager))
    assert "weight is off by 0.1" in next(differences("ddp", ours, eager))
    assert "one side only" in next(differences("ddp", [{"loss": torch.ones(())}], eager))


def test_a_way_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="the ways are ddp, fsdp, tensor"):
        shared(torch.nn.Linear(1, 1), "pipeline", "assay", None)  # type: ignore[arg-type]
