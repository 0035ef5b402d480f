"""Kernels built with sanitizers, run over the suites: `python -m assay.suites.sanitized`, `tox -e sanitize`.

    address       a kernel reads or writes beside a tensor's memory, or in memory that was freed
    undefined     shifts by too much, divisions by zero, misaligned addresses, values that no bool has

Torch's own allocations are seen, since the sanitizer's library comes first in the process. Its code is not built so,
and is not looked at. Signed integers wrap by `-fwrapv`, as in eager, so an overflow is no report. Conversions of floats
beyond an integer's range are none either: eager's own kernels leave them to the processor (`float-cast-overflow`).
Every report is written to a file; any makes this end with 1, as does a run that dies.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.compiler.toolchain.build import Compiler, find_compiler

SANITIZERS = "address,undefined"
LIBRARIES = ("libasan.so", "libubsan.so")
RUNS: dict[str, tuple[str, ...]] = {
    "zoo": ("zoo",),
    "semantics": ("semantics",),
    "ops": ("ops", "--shard", "1/40"),
    "programs": ("programs", "--examples", "2000"),
}
"""What is run: the arguments of `assay run`, under a name."""
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """A C++ compiler with the libraries of its sanitizers, which a process loads before all others."""

    compiler: Compiler
    libraries: tuple[str, ...]

    @staticmethod
    def find() -> Sanitizer | None:
        """The sanitizers of this machine's compiler; None where it has none."""
        compiler = find_compiler(os.environ.get("ASSAY_CXX", ""))
        if compiler is None:
            return None
        asked = [[compiler.path, f"-print-file-name={name}"] for name in LIBRARIES]
        paths = [subprocess.run(one, capture_output=True, text=True).stdout.strip() for one in asked]
        return Sanitizer(compiler, tuple(paths)) if all(Path(path).is_file() for path in paths) else None

    def environment(self, reports: Path) -> dict[str, str]:
        """The environment of a process whose reports go to files in a folder."""
        logged = f"log_path={reports / 'report'}:halt_on_error=0"
        return {
            **os.environ,
            "ASSAY_SANITIZE": SANITIZERS,
            "ASSAY_CACHE": os.environ.get("ASSAY_CACHE", str(Path.home() / ".cache" / "assay")),
            "LD_PRELOAD": ":".join(self.libraries),
            "ASAN_OPTIONS": f"detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1:{logged}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:{logged}",
        }

    def run(self, command: list[str], reports: Path) -> int:
        """The exit status of a command under the sanitizers, of which one writes to standard error alone."""
        with open(reports / "stderr", "w") as errors:
            return subprocess.run(command, env=self.environment(reports), stderr=errors).returncode


def reports_in(folder: Path) -> Iterator[str]:
    """The first lines of each report in a folder."""
    for path in sorted(folder.iterdir()):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        starts = [n for n, line in enumerate(lines) if "ERROR: " in line or "runtime error: " in line]
        yield from ("\n    ".join(lines[n : n + SHOWN]) for n in starts)


def summary(reports: Iterable[str]) -> str:
    """Reports, the most frequent first, each once."""
    return "\n".join(f"{count} x {text}" for text, count in Counter(reports).most_common())


def main() -> int:
    """Runs the suites under the sanitizers. Returns 1 where there is any report, or a run died."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", default=[*RUNS], help=f"of {', '.join(RUNS)}; all by default")
    parser.add_argument("--also", default="", help="further arguments of each `assay run`, as one text")
    asked = parser.parse_args()
    sanitizer = Sanitizer.find()
    if sanitizer is None:
        print("the C++ compiler has no sanitizers")
        return 1
    results = [_ran(sanitizer, name, asked.also.split()) for name in asked.names]
    return int(not all(results))


def _ran(sanitizer: Sanitizer, name: str, also: list[str]) -> bool:
    """Whether a run ended by itself without a report. What its verdicts are is for `assay run` alone to say."""
    with tempfile.TemporaryDirectory(prefix="assay-reports-") as folder:
        status = sanitizer.run([sys.executable, "-m", "assay", "run", *RUNS[name], *also], Path(folder))
        found = list(reports_in(Path(folder)))
    print(f"{name}: {len(found)} reports, exit status {status}\n{summary(found)}", flush=True)
    return not found and status in (0, 1)


if __name__ == "__main__":
    raise SystemExit(main())
