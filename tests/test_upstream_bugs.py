"""The repros of upstream bugs still show what they say; a torch that has mended one says so here.

Each runs once, in this process. With ASSAY_FRESH_PROCESSES=3 each runs that often, every time in a process of its own.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "suites" / "upstream_bugs"
REPROS = [
    pytest.param(path, marks=pytest.mark.gpu if "NVIDIA GPU" in path.read_text().split('"""')[1] else (), id=path.stem)
    for path in sorted(FOLDER.glob("*.py"))
    if not path.name.startswith("_")
]
PROCESSES = int(os.environ.get("ASSAY_FRESH_PROCESSES", "0"))


@pytest.mark.parametrize("path", REPROS)
def test_upstream_bug_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Seen with torch" in path.read_text().split('"""')[1], f"{path.name} names no versions"
    assert len(path.read_text().splitlines()) < 40, f"{path.name} is no minimal program"
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{path.name} no longer shows: {done.stdout}{done.stderr[-2000:]}"
    if not PROCESSES:
        monkeypatch.setattr(sys, "argv", [str(path)])
        torch._dynamo.reset()
        with torch.enable_grad():  # and back: a repro may turn them off
            assert runpy.run_path(str(path))["main"]() == 0, f"the difference of {path.name} no longer shows"
