"""`python -m assay run` as a process: real cases held against eager, and the signal that ends it early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.sources import ROOT

CASES = """
import time
import torch
from assay.harness.case import case

@case(modes=("infer",))
def quick():
    return (lambda x: x * 2), (torch.ones(3),), {}

@case(modes=("infer",))
def slow():
    return wait, (torch.ones(3),), {}

def wait(x):
    time.sleep(600)
    return x
"""

BACKEND = """
import torch

def wrong(graph, inputs):
    return lambda *args: [out * 1.5 for out in graph.forward(*args)]
"""


def command(folder: Path, *arguments: str) -> list[str]:
    (folder / "mine.py").write_text(CASES)
    return [sys.executable, "-m", "assay", "run", str(folder / "mine.py"), *arguments]


def test_run_ended_by_a_time_limit_keeps_what_had_ended(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = ["--backend", "eager-none", "--json", str(path)]
    with subprocess.Popen(command(tmp_path, *options), stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        partial = json.loads(path.read_text())
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert [row["case"] for row in partial["results"]] == ["mine.quick"] and partial["interrupted"]
    assert process.returncode == 130
    data = json.loads(path.read_text())
    assert [(row["case"], row["verdict"]) for row in data["results"]] == [("mine.quick", "same")]
    assert data["interrupted"] and "Interrupted" in output


def test_run_finds_a_backend_in_the_working_directory_and_says_that_it_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "my_backend.py").write_text(BACKEND)
    code = (
        "import sys; sys.path.remove('') if '' in sys.path else None; from assay.harness.__main__ import main; main()"
    )
    arguments = command(tmp_path, "--backend", "my_backend:wrong", "--filter", "quick")[3:]
    path = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "mine.quick infer my_backend:wrong: diverged" in done.stdout
