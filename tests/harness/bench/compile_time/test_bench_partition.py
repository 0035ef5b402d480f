"""`compile_time.partitioning`: bars, exponents, and the cut of small graphs in a process of its own."""

from __future__ import annotations

import dataclasses
import json

import pytest
from rich.console import Console

from assay.harness.bench.compile_time import partitioning
from assay.harness.bench.compile_time.partition_worker import row_of
from assay.harness.bench.compile_time.partitioning import AT, Growing, Partitioning, Row, growth_of


def rows(*seconds: float | None, first: int = 2500) -> tuple[Row, ...]:
    """Sizes 2500, 5000, 10000, ...; None did not end."""
    return tuple(
        Row("chain", first << k, first << k if s else None, s, error="" if s else "timeout")
        for k, s in enumerate(seconds)
    )


@pytest.mark.parametrize(
    "measured, passes",
    [
        (rows(0.2, 0.4, 0.8), True),
        (rows(0.3, 0.6, 1.2), False),
        (rows(0.05, 0.1, 0.5), False),
        (rows(0.2, 0.4, None), False),
        (rows(0.2), False),
        ((), False),
    ],
)
def test_partition_passes_within_both_bars(measured: tuple[Row, ...], passes: bool) -> None:
    done = Partitioning(measured)
    assert done.passes is passes
    data = json.loads(json.dumps(partitioning.document(done, {"torch": "2"})))
    assert [row["seconds"] for row in data["rows"]] == [row.seconds for row in measured]
    partitioning.show(Console(width=200), done)


def test_partition_growth_is_the_slope_and_the_time_at_the_bar() -> None:
    growth = growth_of(rows(0.1, 0.2, 0.4, first=3000))
    assert growth.exponent == pytest.approx(1) and growth.at_s == pytest.approx(0.4 * AT / 12000)


def test_partition_measures_a_program_in_a_process_of_its_own() -> None:
    chain = partitioning.programs()["chain"]
    found = partitioning.measured(dataclasses.replace(chain, sizes=(100, 300)), 200)
    assert [row.error for row in found] == ["", ""], found
    assert all(row.seconds and row.nodes and row.saved for row in found)


@pytest.mark.parametrize("program", partitioning.programs().values(), ids=lambda program: program.name)
def test_partition_programs_have_about_the_nodes_that_they_are_asked_for(program: Growing) -> None:
    row = row_of(*program.make(300), 300)
    assert abs(row["nodes"] - 300) < 75 and row["saved"] and row["seconds"]


def test_partition_says_what_did_not_end() -> None:
    chain = partitioning.programs()["chain"]
    found = partitioning.measured(dataclasses.replace(chain, sizes=(100,)), 0.2)
    assert len(found) == 1 and "timeout" in found[0].error and not Partitioning(found).passes
