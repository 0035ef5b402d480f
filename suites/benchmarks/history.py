"""What is followed over many commits: `asv run --bench "^history\\."`, a minute or two a commit.

Counts of a compile and of a call come first, as they are the same on a busy machine. Beside the one time is that of a
fixed eager workload: `assay regressions --asv` takes times relative to it, and knows kernels by their hash.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay.compiler import journal
from assay.harness.measure import alternate, python_calls
from assay.harness.track.measure_worker import hash_of, workload

from .subject import NotSame, Subject, empty_caches

SUBJECTS = (
    ("overhead.tiny_function", "train"),
    ("overhead.tiny_module", "train"),
    ("overhead.mutation_and_alias", "train"),
    ("benchmarks.layer_norm", "infer"),
)
NAMES = tuple(f"{case} {mode}" for case, mode in SUBJECTS)
ROUNDS = 15
SAMPLE_S = 0.02
LETTERS = 12
"""Of a hash: a float holds so many hexadecimal digits exactly."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a subject came to, or in `why` the reason why it was not measured."""

    compile_calls: int = 0
    call_calls: int = 0
    kernels: int = 0
    source_lines: int = 0
    kernels_hash: int = 0
    call_s: float = 0.0
    workload_s: float = 0.0
    why: str = ""


class History:
    """Each subject is compiled and judged once for all of its numbers."""

    timeout = 60
    param_names = ("subject",)
    params = (NAMES,)

    def setup_cache(self) -> dict[str, Counted]:
        os.environ["ASSAY_MACHINE"] = "default"  # what is measured of the machine would decide what is generated
        return {f"{case} {mode}": counted(Subject(case, mode, "assay")) for case, mode in SUBJECTS}

    setup_cache.timeout = 900  # type: ignore[attr-defined]

    def setup(self, found: dict[str, Counted], name: str) -> None:
        if found[name].why:
            raise NotSame(f"{name}: {found[name].why}")

    def track_compile_calls(self, found: dict[str, Counted], name: str) -> int:
        return found[name].compile_calls

    track_compile_calls.unit = "calls"  # type: ignore[attr-defined]

    def track_call_calls(self, found: dict[str, Counted], name: str) -> int:
        return found[name].call_calls

    track_call_calls.unit = "calls"  # type: ignore[attr-defined]

    def track_kernels(self, found: dict[str, Counted], name: str) -> int:
        return found[name].kernels

    track_kernels.unit = "kernels"  # type: ignore[attr-defined]

    def track_source_lines(self, found: dict[str, Counted], name: str) -> int:
        return found[name].source_lines

    track_source_lines.unit = "lines"  # type: ignore[attr-defined]

    def track_kernels_hash(self, found: dict[str, Counted], name: str) -> int:
        return found[name].kernels_hash

    track_kernels_hash.unit = "hash"  # type: ignore[attr-defined]

    def track_call_s(self, found: dict[str, Counted], name: str) -> float:
        return found[name].call_s

    track_call_s.unit = "s"  # type: ignore[attr-defined]

    def track_fixed_workload(self, found: dict[str, Counted], name: str) -> float:
        return found[name].workload_s

    track_fixed_workload.unit = "s"  # type: ignore[attr-defined]


def counted(subject: Subject) -> Counted:
    """A subject's numbers, if its result is eager's. Raises: nothing of the subject; its error becomes a reason."""
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
        for _ in range(3):
            step()
        times = alternate(step, workload(), rounds=ROUNDS, sample_s=SAMPLE_S)
        return Counted(
            compile_calls, python_calls(step), int(str(kernels)), _lines(Path(folder)),
            int(hash_of(Path(folder))[:LETTERS] or "0", 16), times.ours_ms / 1e3, times.theirs_ms / 1e3,
        )  # fmt: skip


def _lines(folder: Path) -> int:
    """The lines of all sources that were generated."""
    return sum(path.read_text().count("\n") for path in folder.glob("*/*_source_*.py"))
