"""A stretch of time in which no other process of the same run is at work: what is timed in it is timed alone.

    with alone():
        time it

The processes of a run share a folder, which `ASSAY_ALONE` names: each has a file there, named by its number. Whoever
wants to be alone holds the folder's lock, and stops the others until it is done. Without a folder there are no others.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = "ASSAY_ALONE"
LOCK = "lock"


@contextmanager
def shared_folder() -> Iterator[None]:
    """The processes that this one starts meanwhile share a folder."""
    before = os.environ.get(FOLDER)
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        os.environ[FOLDER] = name
        try:
            yield
        finally:
            del os.environ[FOLDER]
            if before is not None:
                os.environ[FOLDER] = before


def has_others() -> bool:
    """Whether this process's children run beside others of the same run."""
    return _folder() is not None


def join() -> None:
    """From now on this process, which leads a process group, can be stopped by the others."""
    if (folder := _folder()) is not None:
        (folder / str(os.getpid())).touch()


def leave(process: int) -> None:
    """Takes a process that has ended out of the folder. Those that it may have stopped go on."""
    if (folder := _folder()) is not None:
        (folder / str(process)).unlink(missing_ok=True)
        _signal(_members(folder), signal.SIGCONT)


def end_others() -> None:
    """Kills every process that has joined, with its group."""
    if (folder := _folder()) is not None:
        _signal(_members(folder), signal.SIGKILL)


@contextmanager
def alone() -> Iterator[None]:
    """Every other process that has joined stands still, with all that it started in its process group."""
    if (folder := _folder()) is None:
        yield
        return
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [process for process in _members(folder) if process != os.getpid()]
        try:
            _signal(others, signal.SIGSTOP)
            yield
        finally:
            _signal(others, signal.SIGCONT)


def _folder() -> Path | None:
    return Path(os.environ[FOLDER]) if FOLDER in os.environ else None


def _members(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended since
            os.killpg(process, number)
