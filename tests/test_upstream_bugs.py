"""The repros of upstream bugs still show what they say; a torch that has mended one says so here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "suites" / "upstream_bugs"
REPROS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


@pytest.mark.parametrize("path", REPROS, ids=lambda path: path.stem)
def test_upstream_bug_shows(path: Path) -> None:
    assert "Seen with torch" in path.read_text().split('"""')[1], f"{path.name} names no versions"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"the difference of {path.name} no longer shows: {done.stdout}{done.stderr[-2000:]}"
