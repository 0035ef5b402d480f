"""A measurement in a process of its own, so that neither a crash nor a hang ends the run that asked for it.

The worker is a module run as `python -m MODULE REQUEST ANSWER`: REQUEST is a JSON file, ANSWER receives one JSON line
as soon as each part is measured, so that a crash loses only what was under way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def _run(module: str, folder: Path, timeout_s: float, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """None if the worker ended well, else `timeout` or `crash` and a sentence."""
    command = [sys.executable, "-m", module, str(folder / "request"), str(folder / "answer")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return "timeout", f"no answer within {timeout_s:g} s (--timeout)"
        finally:
            _end_group(process)
    return None if code == 0 else ("crash", f"{_ending(code)}: {_last_line(folder / 'log')}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the worker and what it started, such as the compile workers of a backend."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
