"""The children of the state machine end with the run that started them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from assay.harness.search import drive
from assay.harness.search.drive import Plan, Shards


def test_children_end_when_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[int] = []
    start = drive.Shard._started

    def noted(shard: drive.Shard) -> drive.Child:
        child = start(shard)
        started.append(child._process.pid)
        return child

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drive.Shard, "_started", noted)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Shards(Plan(backend="eager", runs=100, jobs=2, store=str(tmp_path))).run()
    assert len(started) == 2
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
