"""What is followed over many commits: `asv run --bench "^history\\."`, less than a minute a commit.

Counts of a compile and of a call come first, as they are the same on a busy machine. Beside the one time is that of a
fixed eager workload: `assay regressions --asv` takes times relative to it, and knows kernels by their hash.

asv starts a process for each number of each subject. This module imports no torch, so that such a process only looks a
number up.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

SUBJECTS = (
    ("overhead.mutation_and_alias", "train"),
    ("benchmarks.layer_norm", "infer"),
)
NAMES = tuple(f"{case} {mode}" for case, mode in SUBJECTS)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a subject came to, or in `why` the reason why it was not measured."""

    compile_calls: int = 0
    compile_instructions: int = 0
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
        counted = importlib.import_module(".counted", __package__).counted
        return {f"{case} {mode}": counted(case, mode) for case, mode in SUBJECTS}

    setup_cache.timeout = 900  # type: ignore[attr-defined]

    def setup(self, found: dict[str, Counted], name: str) -> None:
        if found[name].why:
            raise AssertionError(f"{name}: {found[name].why}")

    def track_compile_calls(self, found: dict[str, Counted], name: str) -> int:
        return found[name].compile_calls

    track_compile_calls.unit = "calls"  # type: ignore[attr-defined]

    def track_compile_instructions(self, found: dict[str, Counted], name: str) -> int:
        return found[name].compile_instructions

    track_compile_instructions.unit = "instructions"  # type: ignore[attr-defined]

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
