"""Drawn programs are as eager on our backend, called three times, without gradients and with."""

from __future__ import annotations

import pytest
from hypothesis import given

from assay.harness.outcome import Result
from assay.harness.search.generated import Program, kind_of
from assay.harness.search.hunt_worker import tried
from assay.harness.search.shrink import shrink
from assay.suites.programs import Generated
from assay.suites.programs.strategies import programs

BACKEND = "assay,target=aten"
AS_EAGER = ("same", "fell-back", "reference-unstable", "no-oracle")
SHRINK_S = 15.0


@pytest.mark.parametrize("mode", ["infer", "train"])
@given(program=programs())
def test_programs_are_eagers(mode: str, program: Generated) -> None:
    result = tried(program, mode, BACKEND)
    if result.verdict not in AS_EAGER and not _differs_without_a_backend(program, result):
        smallest = shrink(program, lambda candidate: _fails_so(candidate, result), SHRINK_S)
        pytest.fail(f"{smallest.source()}\n{result.detail} {result.differences}", pytrace=False)


def _fails_so(program: Program, result: Result) -> bool:
    again = tried(program, result.mode, BACKEND)
    return again.verdict not in AS_EAGER and kind_of(result).includes(kind_of(again))


def _differs_without_a_backend(program: Program, result: Result) -> bool:
    """Whether Dynamo alone, with eager behind it, fails in the same way: the front end's fault."""
    alone = tried(program, result.mode, "eager")
    return alone.verdict not in AS_EAGER and kind_of(alone).includes(kind_of(result))
