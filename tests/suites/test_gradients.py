"""A slice of the gradients, in the default tests: which operators, and one sample of each, a hash of names says.

The whole is `assay run gradients`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.batches.sample import Sample
from assay.harness.judge import ledger
from assay.suites import gradients

EVERY = 60
"""One batch in so many."""
MENDED = {"diff.float64.gradgradcheck": "22", "nn.functional.logsigmoid.float64.gradgradcheck": "0"}
"""Samples that once were not as eager, by their batch."""
KNOWN = ledger.read()
UNITS = plan(gradients.batches(), ("assay",), "", ("train",), ("static",), Shard())


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def one_of(samples: Sequence[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: hashed(sample.name))[:1]


@pytest.mark.parametrize("unit", [u for u in UNITS if hashed(u.key) % EVERY == 0], ids=lambda unit: unit.batch.name)
def test_gradients_are_those_of_eager(unit: Unit) -> None:
    tally = run_batch(unit.batch, How(unit.backend, 0, "gradients", only=one_of))
    for result in tally.failures:
        replay = f"assay run gradients --filter {unit.batch.name}"
        assert judged(result, KNOWN).passes, (replay, result.case, result.verdict, result.detail, result.differences)


@pytest.mark.parametrize("unit", [u for u in UNITS if u.batch.name in MENDED], ids=lambda unit: unit.batch.name)
def test_gradients_once_mended_stay(unit: Unit) -> None:
    def only(samples: Sequence[Sample]) -> list[Sample]:
        return [sample for sample in samples if sample.name == MENDED[unit.batch.name]]

    tally = run_batch(unit.batch, How(unit.backend, 0, "gradients", only=only))
    assert tally.samples == 1 and not tally.failures, tally.failures


def test_gradients_are_of_every_operator_that_has_them() -> None:
    names = {unit.batch.group for unit in UNITS}
    assert {"add.float64", "add.complex128", "nn.functional.conv2d.float64"} <= names
    assert "argmax.float64" not in names and "add.float32" not in names
    forms = {unit.batch.group: unit.batch.form for unit in UNITS}
    assert forms["add.float64"] == "gradgradcheck" and "gradcheck" in forms.values()
