"""C++ text -> shared object, with the system's compiler."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.compiler.errors import BuildError
from assay.compiler.options import sanitizers, unsanitized


def sanitizing(names: str) -> tuple[str, ...]:
    """The flags that build kernels with these sanitizers: every report names its line, and the process goes on."""
    if not names:
        return ()
    return (f"-fsanitize={names}", "-fsanitize-recover=all", "-fno-omit-frame-pointer", "-g1", "-O1")


FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fPIC",
    "-fopenmp",
    "-fwrapv",  # integers wrap in eager
    "-fno-math-errno",  # nobody reads errno, and setting it stops vectorisation
    "-fno-trapping-math",  # nobody reads the exception flags; without it no branch on floats becomes a select
    "-fno-thread-jumps",  # threading turns two selects on one condition into two copies of what is between them
    "-fno-tree-pre",  # it makes selects of conditions, which have no vector form: of `log1p(exp(x))` too
    "-fno-tree-sink",  # it moves a call into the branch of a select, and a call in a branch has no vector form
    "-fno-loop-unroll-and-jam",  # it makes one of two steps of an outer loop, and then no vectors of the inner one
    "-ffp-contract=off",  # x*y - y*x is 0 in eager; a fused one leaves the rounding error of one product
    "-fno-semantic-interposition",
    "-Wl,-Bsymbolic",  # a kernel that is called as a function of libm is still itself
    *sanitizing(sanitizers()),
)
"""NaN, infinities and signed zeros are kept: nothing of -ffast-math is here."""

NAMES = ("g++", "c++", "clang++")
"""The C++ compilers that are looked for, in this order."""

LINES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that runs: where it is, and the text of its version, which the cache key holds."""

    path: str
    version: str


@functools.cache
def find_compiler(cxx: str) -> Compiler | None:
    """The compiler `cxx`, or the first of g++, c++ and clang++ on PATH when it is empty; None where none runs."""
    for name in (cxx,) if cxx else NAMES:
        path = shutil.which(name)
        version = _version(path) if path else None
        if path and version:
            return Compiler(path, version)
    return None


def _version(path: str) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, env=unsanitized())
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build(sources: Sequence[str], compiler: Compiler, output: Path) -> Path:
    """Compiles the translation units side by side and links them into the shared object `output`.

    Raises: BuildError with the command and the compiler's first lines.
    """
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        paths = [Path(folder) / f"unit{n}.cpp" for n in range(len(sources))]
        for path, source in zip(paths, sources, strict=True):
            path.write_text(source)
        if len(paths) == 1:
            _run([compiler.path, *FLAGS, "-shared", str(paths[0]), "-o", str(output), "-lm"])
            return output
        with ThreadPoolExecutor(max_workers=min(len(paths), os.cpu_count() or 1)) as pool:
            objects = list(pool.map(functools.partial(_compile, compiler), paths))
        _run([compiler.path, *FLAGS, "-shared", *map(str, objects), "-o", str(output), "-lm"])
    return output


def _compile(compiler: Compiler, path: Path) -> Path:
    target = path.with_suffix(".o")
    _run([compiler.path, *FLAGS, "-c", str(path), "-o", str(target)])
    return target


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=unsanitized())
    except OSError as error:
        raise BuildError(f"assay: the C++ compiler did not start: {error}\n  command: {' '.join(command)}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines
        shown = "\n  ".join(errors[:LINES_SHOWN]) or "(it printed nothing)"
        raise BuildError(
            f"assay: the C++ compiler failed with exit status {done.returncode} on generated code\n"
            f"  command: {' '.join(command)}\n  {shown}"
        )
