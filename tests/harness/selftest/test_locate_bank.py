"""Which rungs a bug may show on first, and what is counted of the bugs that were located."""

from __future__ import annotations

import json

import pytest

from assay.harness.locate.rungs import ladder_of
from assay.harness.processes.child import Child
from assay.harness.selftest.locate_bank import (
    LIMIT_S,
    Located,
    as_data,
    children_cpu_s,
    expected_rungs,
    of_data,
    totals,
)
from assay.harness.selftest.mutants import Mutant, read

MUTANTS = {mutant.name: mutant for mutant in read()}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_locate_expects_each_bug_on_rungs_of_its_ladder(mutant: Mutant) -> None:
    known = {rung.name for backend in (mutant.backend, "assay") for rung in ladder_of(backend)}
    assert expected_rungs(mutant) and set(expected_rungs(mutant)) & known, mutant.file


def located(rung: str, seconds: float = 1.0, cpu_s: float = 1.0, calls: int | None = 2, failures: int = 3) -> Located:
    file = "compiler/passes/fold_constants.py"
    return Located("x", file, "a infer assay", rung, ("fold_constants",), seconds, cpu_s, calls, failures, 3)


def test_locate_counts_what_is_right() -> None:
    found = [
        located("fold_constants"),
        located("fused", 2 * LIMIT_S, 30.0, 11, 2),
        located("fold_constants", calls=None),
    ]
    told = totals(found)
    assert (told["mutants"], told["rung_right"], told["passes"], told["pass_right"]) == (3, 2, 3, 2)
    assert (told["small"], told["verified"]) == (1, 2)
    assert (told["in_time"], told["in_cpu_time"], told["longest_cpu_s"]) == (2, 3, 30.0)
    assert [each["is_small"] for each in as_data(found)] == [True, False, False]
    assert [of_data(each) for each in json.loads(json.dumps(as_data(found)))] == found


def test_locate_counts_the_cpu_time_of_a_child() -> None:
    before = children_cpu_s()
    child = Child("timeit", "-n", "1", "-r", "1", "sum(range(10**7))")
    assert child.wait(60) == 0
    assert 0.01 < children_cpu_s() - before < 60
