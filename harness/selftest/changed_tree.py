"""A checkout of which one source file of the compiler is changed: a folder of its own; the real one stays as it is.

The folder holds a copy of `compiler/` and of the package `assay`, and links to everything else. It comes first on the
import path of a process and of all that the process starts, such as compile workers. So each of them runs the changed
compiler. The copy is another set of sources: what the compiler's cache keeps of it has other keys.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.harness.processes.child import sharing
from assay.harness.processes.worker import cold_environment
from assay.harness.selftest.mutants import ROOT, Mutant

COPIED = ("compiler", "assay")
"""What is a copy: the compiler, and the package whose links lead to the folders beside it."""


@contextmanager
def changed_tree(mutant: Mutant | None, root: Path = ROOT) -> Iterator[Path]:
    """The folder, for as long as the context is open; None changes nothing. Raises: MutantError."""
    with tempfile.TemporaryDirectory(prefix="assay-mutant-") as name:
        tree = Path(name)
        for entry in root.iterdir():
            if entry.name not in COPIED and not entry.name.startswith("."):
                (tree / entry.name).symlink_to(entry)
        for copied in COPIED:
            shutil.copytree(root / copied, tree / copied, symlinks=True)
        if mutant is not None:
            _change(tree / mutant.file, mutant)
        yield tree


def _change(path: Path, mutant: Mutant) -> None:
    path.write_text(mutant.changed(path.read_text()))
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()  # a change within one second that keeps the length would be taken for the file as it was


@contextmanager
def environment_of(tree: Path, backend: str) -> Iterator[dict[str, str]]:
    """The environment variables of a process that runs the compiler of a tree, with an empty cache of its own.

    The current folder stays off the import path: it may be a checkout too.
    """
    paths = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    interpreted = {"TRITON_INTERPRET": "1"} if backend.startswith("assay-triton") else {}
    with cold_environment() as cold:
        yield {**cold, **sharing(), **interpreted, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
