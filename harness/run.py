"""Runs one case against eager: `run_case` is the whole of the harness for one row of the report."""

from __future__ import annotations

from harness.backends import Backend
from harness.case import Case
from harness.outcome import Result


def run_case(
    case: Case,
    mode: str,
    backend: str | Backend,
    *,
    size: str = "tiny",
    seed: int = 0,
    device: str = "cpu",
    timed: bool = True,
) -> Result:
    """One case in one mode on one backend, observed over two steps and held against eager."""
    raise NotImplementedError
