"""The numbers of one subject, as `history` follows them: what compiling it calls, what a call of it takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from assay.compiler import journal
from assay.harness.measure import alternate, python_calls, python_instructions
from assay.harness.track.measure_worker import hash_of, workload

from .history import Counted
from .subject import Subject, empty_caches

ROUNDS = 9
SAMPLE_S = 0.02
LETTERS = 12
"""Of a hash: a float holds so many hexadecimal digits exactly."""


def counted(case: str, mode: str) -> Counted:
    """A subject's numbers, if its result is eager's. Raises: nothing of the subject; its error becomes a reason."""
    subject = Subject(case, mode, "assay")
    try:
        result = subject.result()
        if result.verdict != "same":
            return Counted(why=f"{result.verdict} {result.detail}".rstrip())
        return _counted(subject)
    except Exception as error:
        return Counted(why=f"{type(error).__name__}: {error}"[:500])


def _counted(subject: Subject) -> Counted:
    with empty_caches(), tempfile.TemporaryDirectory() as folder:
        subject.step()()  # imports belong to no subject
        journal.reset()
        with empty_caches():
            step = subject.step_under(f"{subject.backend},dump={folder}")
            step()
        kernels = journal.totals()["kernels"]
        step = subject.step()
        with empty_caches():
            compile_calls = python_calls(step)
        step = subject.step()
        with empty_caches():
            instructions = python_instructions(step)
        for _ in range(3):
            step()
        times = alternate(step, workload(), rounds=ROUNDS, sample_s=SAMPLE_S)
        return Counted(
            compile_calls, instructions, python_calls(step), int(str(kernels)), _lines(Path(folder)),
            int(hash_of(Path(folder))[:LETTERS] or "0", 16), times.ours_ms / 1e3, times.theirs_ms / 1e3,
        )  # fmt: skip


def _lines(folder: Path) -> int:
    """The lines of all sources that were generated."""
    return sum(path.read_text().count("\n") for path in folder.glob("*/*_source_*.py"))
