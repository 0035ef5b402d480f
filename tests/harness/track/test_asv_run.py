"""asv on the commit at hand: its numbers become samples, and what keeps it from running is said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("asv", reason="asv is of the extra `bench`")

from assay.harness.track.asv_run import measured_by_asv

BENCHMARK = """
class Numbers:
    params = (["a", "b"],)

    def track_size(self, name):
        return {"a": 3, "b": 5}[name]

    track_size.unit = "lines"
"""
CONFIG = """{
    "version": 1, "project": "mine", "repo": ".", "branches": ["HEAD"], "environment_type": "virtualenv",
    // a comment, as asv's files have
    "benchmark_dir": "speed", "results_dir": ".asv/results", "env_dir": ".asv/env", "html_dir": ".asv/html"
}"""


def checkout(folder: Path, *, module: str = "history", with_config: bool = True) -> str:
    """A project with benchmarks, of two commits; the hash of the last one."""
    (folder / "speed").mkdir(parents=True)
    (folder / "speed" / "__init__.py").touch()
    (folder / "speed" / f"{module}.py").write_text(BENCHMARK)
    if with_config:
        (folder / "asv.conf.json").write_text(CONFIG)
    git = ("git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q"], check=True)
    for message in ("one", "two"):
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["history", "another"])
def test_asv_runs_on_the_commit_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # asv keeps there what it knows of the machine
    (tmp_path / "home").mkdir()
    commit = checkout(tmp_path / "project", module=module)
    said: list[str] = []
    found = measured_by_asv(tmp_path / "project", 120.0, said.append)
    assert said == []
    told = {each["series"]: (each["value"], each["unit"], each["position"]) for each in found}
    name = f"{module}.Numbers.track_size"
    assert told == {f"{name} a": (3, "lines", 2), f"{name} b": (5, "lines", 2)}
    assert {each["commit"] for each in found} == {commit[:10]}
    (path,) = (tmp_path / "project" / ".asv" / "results").glob("*/*existing*.json")
    older = json.loads(path.read_text()) | {"commit_hash": "0" * 40}
    (path.parent / "00000000-x.json").write_text(json.dumps(older))
    assert len(measured_by_asv(tmp_path / "project", 120.0, said.append)) == 2, "not those of another commit"


def test_asv_that_cannot_run_says_why(tmp_path: Path) -> None:
    said: list[str] = []
    checkout(tmp_path / "bare", with_config=False)
    assert measured_by_asv(tmp_path / "bare", 60.0, said.append) == []
    assert measured_by_asv(tmp_path, 60.0, said.append) == []
    assert said[0].endswith("bare has no asv.conf.json") and said[1].endswith("is no checkout")
    checkout(tmp_path / "late")
    assert measured_by_asv(tmp_path / "late", 0.0, said.append) == []
    assert "its time was up" in said[-1]
