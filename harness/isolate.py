"""Runs a case in a process of its own, so that a crash or a hang ends neither the run nor the report."""

from __future__ import annotations

from harness.case import Case
from harness.outcome import Result


def run_isolated(
    case: Case,
    mode: str,
    backend: str,
    *,
    size: str = "tiny",
    seed: int = 0,
    device: str = "cpu",
    timeout_s: float = 300.0,
    timed: bool = True,
) -> Result:
    """What `run_case` gives, from a process of its own; `timeout` or `crash` where that process gave nothing."""
    raise NotImplementedError
