"""What a worker runs in tests: a row, or its own end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from assay.harness.cluster.rows import Task, run_task


def run_or_die(task: Task) -> dict[str, Any]:
    """A case `..._once` ends its first worker, a case `..._always` each one; any other is run."""
    marker = Path(os.environ["ASSAY_TEST_MARKER"]) / task.backend
    if task.case.endswith("always") or (task.case.endswith("once") and not marker.exists()):
        marker.touch()
        os._exit(3)
    return run_task(task) if not task.case.endswith("once") else {
        "case": task.case, "mode": task.mode, "backend": task.backend, "verdict": "same", "differences": [],
    }  # fmt: skip
