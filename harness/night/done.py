"""What a night has done so far, as its folder keeps it: a night that was killed goes on from there.

night.jsonl     the run of the store, then each part that has ended, a line each
night.lock      held by the night and by the part that runs: a folder is one night's at a time
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness.remember.store import Store, StoreError, surroundings_of

POLL_S = 0.5


class FolderError(ValueError):
    """A folder in which another night runs, or that cannot be made."""


@contextmanager
def held(folder: Path, limit_s: float) -> Iterator[int]:
    """Holds the folder, once the last part of a night that was killed has ended; gives the number of the open lock.

    Raises: FolderError where another night holds it for so many seconds, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"--output {folder}: cannot be made ({error.strerror or error})") from error
    end_s = time.monotonic() + limit_s
    with (folder / "night.lock").open("w") as lock:
        while not _is_taken(lock):
            if time.monotonic() > end_s:
                raise FolderError(f"another night runs in {folder}: end it, or give another --output")
            time.sleep(POLL_S)
        yield lock.fileno()


def _is_taken(lock: Any) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class Done:
    """The run that a night keeps, and its parts that have ended: seconds and exit status of each, by name."""

    path: Path
    run: str
    parts: dict[str, tuple[float, int | None]] = field(default_factory=dict)

    @staticmethod
    def begin(folder: Path, run: str) -> Done:
        """A night of which nothing has ended."""
        made = Done(folder / "night.jsonl", run)
        made.path.write_text(json.dumps({"run": run}) + "\n")
        return made

    @staticmethod
    def read(folder: Path) -> Done | None:
        """What the last night in the folder had done; None where there was none."""
        path = folder / "night.jsonl"
        if not path.is_file():
            return None
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        if not lines:
            return None
        return Done(path, lines[0]["run"], {each["part"]: (each["seconds"], each["status"]) for each in lines[1:]})

    def end(self, part: str, seconds: float, status: int | None) -> None:
        """Keeps that a part has ended."""
        self.parts[part] = (seconds, status)
        with self.path.open("a") as file:
            file.write(json.dumps({"part": part, "seconds": seconds, "status": status}) + "\n")


def continued(folder: Path, store: Store, request: Mapping[str, Any], facts: Mapping[str, Any]) -> Done | None:
    """The night in the folder, if it asked for the same on the same commit and machine, and was killed.

    None where the folder's night has ended, or was another one.
    """
    done = Done.read(folder)
    try:
        run = None if done is None else store.run(done.run)
    except StoreError:
        return None
    if run is None or run.ended is not None or run.request != request or run.commit != facts.get("commit"):
        return None
    return done if run.surroundings == surroundings_of(facts) else None
