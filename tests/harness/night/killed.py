"""A night of one part, run until it is killed; `python -m tests.harness.night.killed FOLDER` starts it.

The second case never ends before the file `gate` is in the folder of `ASSAY_TEST_GATE`. Each case says there that it
was made.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from assay.harness.case import case
from assay.harness.night.night import Night, Settings, run_night
from assay.harness.night.parts import KEPT, Part
from tests.sources import ROOT

NAME = "ASSAY_TEST_GATE"
ONLY = Part("zoo", ("run", str(Path(__file__).relative_to(ROOT)), "--backend", "eager", "--jobs", "1", KEPT), 1.0)


def _made(name: str) -> Any:
    with (Path(os.environ[NAME]) / "made").open("a") as file:
        file.write(f"{name}\n")
    return torch.nn.Linear(2, 2), (torch.ones(1, 2),), {}


@case(modes=("infer",))
def first() -> Any:
    return _made("first")


@case(modes=("infer",))
def second() -> Any:
    while not (Path(os.environ[NAME]) / "gate").exists():
        time.sleep(0.1)
    return _made("second")


def night(folder: Path, continues: bool) -> Night:
    with mock.patch("assay.harness.night.night.parts", lambda backends, seed: (ONLY,)):
        url = f"sqlite:///{folder}/runs.sqlite"
        return run_night(Settings(("eager",), 120.0, folder, url, only=("zoo",), continues=continues))


if __name__ == "__main__":
    night(Path(sys.argv[1]), continues=False)
