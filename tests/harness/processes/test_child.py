"""A process of our own: what it says, when it is given up, and that nothing of it stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.harness.processes.child import Child, Lost, ending


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., Child]:
    def start(text: str, **options: bool) -> Child:
        (tmp_path / "played.py").write_text(text)
        return Child("played", environment={"PYTHONPATH": str(tmp_path)}, **options)

    return start


def test_child_speaks_line_by_line_and_listens(started: Callable[..., Child]) -> None:
    child = started("print(input() + '!', flush=True)\nprint('more', flush=True)", speaks=True, listens=True)
    child.tell("hello")
    assert child.line(60).strip() == "hello!" and child.line(60).strip() == "more"
    with pytest.raises(Lost) as lost:
        child.line(60)
    assert (lost.value.verdict, lost.value.told) == ("crash", "exit status 0")
    child.end()


def test_child_that_dies_says_how_and_what_it_printed(started: Callable[..., Child]) -> None:
    child = started("import os, sys\nprint('last words', file=sys.stderr, flush=True)\nos.abort()", speaks=True)
    with pytest.raises(Lost, match="killed by SIGABRT"):
        child.line(60)
    assert "last words" in child.said() and "Fatal Python error" in child.said()
    child.end()
    assert child.status == -6 and ending(3) == "exit status 3"


def test_child_that_is_silent_is_given_up(started: Callable[..., Child]) -> None:
    child = started("import time\ntime.sleep(600)", speaks=True)
    with pytest.raises(Lost, match=r"silent for 0\.2 s") as lost:
        child.line(0.2)
    assert lost.value.verdict == "timeout" and child.wait(0.2) is None
    with pytest.raises(Lost) as lost:
        child.line(60, lambda: True)
    assert lost.value.verdict == "stopped"
    child.end()
    assert child.status == -9


def test_child_takes_what_it_started_with_it(started: Callable[..., Child]) -> None:
    child = started(
        "import subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(other.pid, flush=True)\ntime.sleep(600)",
        speaks=True,
    )
    other = int(child.line(60))
    child.end()
    until = time.monotonic() + 60
    while _lives(other) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(other)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
