"""The state machine on our backend, in the profile that ASSAY_PROFILE names (ci by default)."""

from __future__ import annotations

import os

from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from assay.harness.backends.registry import resolve
from assay.suites.programs.machine import machine_for, profile


def test_machine_finds_no_difference_on_our_backend() -> None:
    machine = seed(1)(machine_for(resolve("assay,target=aten")))
    run_state_machine_as_test(machine, settings=profile(os.environ.get("ASSAY_PROFILE", "ci")))
