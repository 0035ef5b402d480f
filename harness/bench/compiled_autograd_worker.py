"""One program of `compiled_autograd.py` under one backend, in a process of its own.

The answer is one line: the numbers that the program measures, or {"error"}.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from assay.harness.bench.bench_worker import said
from assay.harness.bench.compiled_autograd import PROGRAMS
from assay.harness.processes.worker import Say, answering


def run(request: Mapping[str, Any], say: Say) -> None:
    try:
        say(importlib.import_module(PROGRAMS).measure(**request))
    except Exception as error:
        say({"error": said(error)})


if __name__ == "__main__":
    answering(run)
