"""A slice of the operators, in the default tests: which batches, and which of their samples, a hash of names says.

The whole is `assay run ops`.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Sequence

import pytest

from harness import ledger
from harness.batch import How, run_batch
from harness.batch_run import Shard, Unit, plan
from harness.case import MODES, SHAPES
from harness.sample import Sample
from suites import ops

EVERY = 200
"""One batch in so many."""
MOST = 16
"""How many samples of a batch."""
KNOWN = ledger.read()
UNITS = plan(ops.batches(), ("assay",), "", MODES, SHAPES, Shard())


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def slice_of(samples: Sequence[Sample]) -> list[Sample]:
    """At most so many, in their order."""
    kept = {sample.name for sample in sorted(samples, key=lambda sample: hashed(sample.name))[:MOST]}
    return [sample for sample in samples if sample.name in kept]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if hashed(unit.key) % EVERY == 0], ids=lambda unit: unit.key.replace(" ", "-")
)
def test_ops_are_as_eager(unit: Unit) -> None:
    batch = unit.batch
    tally = run_batch(batch, How(unit.backend, 0, "ops", only=slice_of))
    replay = f"assay run ops --filter {batch.name} --mode {batch.mode} --shapes {batch.shapes[0]}"
    for result in tally.failures:
        judged = ledger.judge(result, KNOWN, datetime.date.today())
        assert judged.passes, (replay, result.case, result.verdict, result.detail, result.differences)


def test_ops_slice_is_of_every_form() -> None:
    chosen = [unit for unit in UNITS if hashed(unit.key) % EVERY == 0]
    forms = {(unit.batch.form, unit.batch.mode) for unit in chosen}
    assert {("forward", "infer"), ("backward", "train"), ("out", "infer"), ("in_place", "infer")} <= forms
    assert {unit.backend for unit in chosen} == {"assay", "assay,dynamic"}
