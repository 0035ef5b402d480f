"""The states of a compile as they are kept: each as `{"graph", "state", "text"}`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from assay.harness.locate.runner import Runner


def states_of(runner: Runner, backend: str, mode: str) -> list[dict[str, str]]:
    """Every state that our compiler goes through, as it is written to a folder."""
    with tempfile.TemporaryDirectory(prefix="assay-states-") as folder:
        runner.run(f"{backend},warm=False,dump={folder}", mode)
        return states_in(Path(folder))


def states_in(folder: Path) -> list[dict[str, str]]:
    """The states that the option `dump` has written to a folder, in their order."""
    paths = sorted(folder.glob("*/*.py"))
    return [{"graph": p.parent.name, "state": p.stem.partition("_")[2], "text": p.read_text()} for p in paths]
