"""Runs asv on the commit at hand, in this environment, and gives its numbers as samples.

A night does this once, so that each commit that has had a night is in asv's folder. Of a project whose benchmarks have
a module `history`, that module alone runs; of another one all of them, each once.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.harness.track.asv_results import samples_of

CONFIG = "asv.conf.json"
SHORT = "history"
COMMENT = re.compile(r"^\s*//.*$", re.M)


def measured_by_asv(within: Path, limit_s: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The samples of the commit that is checked out around a folder; none, which is said, where asv cannot run there.

    Numbers of commits that asv's folder has from before are left out. What was measured when the time is up counts.
    """
    commit, root = (_said(["git", "-C", str(within), "rev-parse", word]) for word in ("HEAD", "--show-toplevel"))
    project = Path(root or within)
    if why := _why_not(project, commit):
        say(f"asv: not run: {why}")
        return []
    end_s = time.monotonic() + limit_s
    config = json.loads(COMMENT.sub("", (project / CONFIG).read_text()))
    is_short = (project / config.get("benchmark_dir", "benchmarks") / f"{SHORT}.py").is_file()
    bench = ["--bench", rf"^{SHORT}\."] if is_short else ["--quick"]
    here = ("-E", f"existing:{sys.executable}", "--set-commit-hash", commit)
    for words in (("machine", "--yes"), ("run", *here, *bench)):
        if told := _failed([sys.executable, "-m", "asv", *words], project, end_s - time.monotonic()):
            say(f"asv {words[0]}: {told}")
    folder = project / config.get("results_dir", "results")
    return [each for each in samples_of(folder, project) if commit.startswith(each["commit"])]


def _why_not(project: Path, commit: str) -> str:
    if importlib.util.find_spec("asv") is None:
        return "it is not installed; the extra `bench` has it"
    if not commit:
        return f"{project} is no checkout"
    return "" if (project / CONFIG).is_file() else f"{project} has no {CONFIG}"


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no such program
        return ""


def _failed(command: list[str], folder: Path, limit_s: float) -> str:
    """What went wrong, in words; "" if nothing did."""
    limit_s = max(0.1, limit_s)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"its time was up after {limit_s:.0f} s"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"exit status {done.returncode}: {lines[-1] if lines else ''}" if done.returncode else ""
