"""A measurement in a process of its own, so that neither a crash nor a hang ends the run that asked for it.

The worker is a module run as `python -m MODULE REQUEST ANSWER`: REQUEST is a JSON file, ANSWER receives one JSON line
as soon as each part is measured, so that a crash loses only what was under way.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness.processes.child import Child, ending

NO_CACHES = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The lines that a worker wrote, and how it ended where it did not end well: `timeout` or `crash`, a sentence."""

    lines: tuple[dict[str, Any], ...]
    failure: tuple[str, str] | None = None


def ask(module: str, request: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str]) -> Answer:
    """Runs one worker to its end, or to the limit; its whole process group goes with it."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as name:
        folder = Path(name)
        (folder / "request").write_text(json.dumps(request))
        (folder / "answer").touch()
        failure = _run(module, folder, timeout_s, environment)
        lines = (folder / "answer").read_text().splitlines()
        return Answer(tuple(map(json.loads, lines)), failure)


@contextmanager
def cold_environment() -> Iterator[dict[str, str]]:
    """Environment variables under which every compile starts from nothing."""
    with tempfile.TemporaryDirectory(prefix="assay-cache-") as folder:
        yield {**NO_CACHES, "ASSAY_CACHE": folder}


def warm_environment(folder: Path) -> dict[str, str]:
    """Environment variables under which every cache is in one folder, and read."""
    names = ("ASSAY_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    return {"ASSAY_WARM": "1"} | {name: str(folder / name.lower()) for name in names}


def _run(module: str, folder: Path, timeout_s: float, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """None if the worker ended well, else `timeout` or `crash` and a sentence."""
    child = Child(module, str(folder / "request"), str(folder / "answer"), environment=environment)
    try:
        status = child.wait(timeout_s)
    finally:
        child.end()
    if status is None:
        return "timeout", f"no answer within {timeout_s:g} s (--timeout)"
    return None if status == 0 else ("crash", f"{ending(status)}: {_last_line(child.said())}")


def _last_line(said: str) -> str:
    """The fault, where Python's fault handler wrote of one; or else the last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    faults = [line for line in lines if line.startswith("Fatal Python error")]
    return [*faults, *reversed(lines), "it said nothing"][0].strip()


Say = Callable[[dict[str, Any]], None]


def answering(run: Callable[[Mapping[str, Any], Say], None]) -> None:
    """Runs the request of the command line. The answer has one line of JSON an event, each written at once."""
    request, answer = map(Path, sys.argv[1:])
    with answer.open("a") as file:

        def say(event: dict[str, Any]) -> None:
            file.write(json.dumps(event) + "\n")
            file.flush()

        run(json.loads(request.read_text()), say)
    sys.stdout.flush()
    os._exit(0)  # what a wrong backend has left behind may not let the interpreter end
