"""`compile_time.scaling`: exponents from times, what counts as linear, and one compile in its own process."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from assay.harness.bench.compile_time import scaling
from assay.harness.bench.compile_time.scaling import Plan, Request, Row, Scaling

PLAN = Plan("assay", (), ("infer",), "", 60.0)


def rows(*seconds: float | None, backend: str = "assay") -> tuple[Row, ...]:
    """Sizes 100, 200, 400, ...; None did not end. Half of the time is in `fuse`."""
    return tuple(
        Row("chain", "infer", backend, 100 << k, 1, s, s, {"fuse": (s or 0) / 2, "emit": 1e-9}, "" if s else "timeout")
        for k, s in enumerate(seconds)
    )


@pytest.mark.parametrize("seconds, exponent", [((1, 2, 4, 8), 1), ((1, 4, 16), 2), ((3, 3, 3), 0)])
def test_scaling_exponent_is_the_slope(seconds: tuple[float, ...], exponent: float) -> None:
    growth = scaling.growth_of(rows(*seconds))
    assert growth.exponent == pytest.approx(exponent) and growth.stages == {"fuse": pytest.approx(exponent)}


@pytest.mark.parametrize(
    "measured, passes",
    [
        (rows(1, 2, 4), True),
        (rows(1, 2, 8), False),
        (rows(1, 2, None), False),
        (rows(1), False),
        ((*rows(1, 2, 4), *rows(1, 9, None, backend="inductor")), True),
        ((*rows(1, 2, 4), *rows(1, 4, 16, backend="assay,dynamic")), False),
    ],
)
def test_scaling_passes_where_every_compile_of_ours_is_linear(measured: tuple[Row, ...], passes: bool) -> None:
    done = Scaling(PLAN, measured, interrupted=False)
    assert done.passes is passes
    data = json.loads(json.dumps(scaling.document(done, {"torch": "2"})))
    assert [row["compile_s"] for row in data["rows"]] == [row.compile_s for row in measured]
    scaling.show(Console(width=200), done)


def test_scaling_measures_a_compile_in_a_process_of_its_own() -> None:
    row = scaling.measured(Request("recurrence", 8, "train", "assay"), 100)
    assert row.error == "" and row.nodes == 3 + 4 * 8 + 1
    assert (
        row.compile_s
        and row.cpu_s
        and {"capture", "differentiate", "partition", "lower", "fuse", "plan"} <= row.stages.keys()
    )


def test_scaling_measures_symbolic_sizes_on_smaller_programs() -> None:
    assert PLAN.backends == ("assay", "assay,dynamic")
    program = scaling.programs()["recurrence"]
    assert max(PLAN.sizes(program, "assay,dynamic")) * 8 <= max(PLAN.sizes(program, "assay"))
    row = scaling.measured(Request("fibonacci", 8, "train", "assay,dynamic"), 100)
    assert row.error == "" and row.compile_s


def test_scaling_says_what_did_not_end() -> None:
    row = scaling.measured(Request("recurrence", 8, "infer", "assay"), 0.2)
    assert row.compile_s is None and "timeout: no answer within 0.2 s" in row.error
    row = scaling.measured(Request("recurrence", 8, "infer", "tests.wrong_backends:missing"), 100)
    assert row.compile_s is None and row.error
