"""Drawn programs are as eager on our backend, called three times, without gradients and with."""

from __future__ import annotations

import pytest
from hypothesis import given

from harness.hunt_worker import tried
from suites.programs import Generated
from suites.programs.strategies import programs


@pytest.mark.parametrize("mode", ["infer", "train"])
@given(program=programs())
def test_programs_are_eagers(mode: str, program: Generated) -> None:
    result = tried(program, mode, "assay,target=aten")
    assert result.verdict in ("same", "reference-unstable"), f"{program.source()}\n{result.detail} {result.differences}"
