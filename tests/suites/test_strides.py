"""A slice of how results lie, in the default tests: which batches, and which of their samples, a hash of names says.

The whole is `assay run strides`; without kernels it is quicker: `assay run strides --backend assay-recorded`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.batches.sample import Sample
from assay.harness.case import MODES, SHAPES
from assay.harness.judge import ledger
from assay.suites import strides

EVERY = 350
"""One batch in so many."""
MOST = {"static": 12, "dynamic": 2}
"""How many samples of a batch. A symbolic size takes ten times the time of a number."""
MENDED = {
    "roll.float32.forward infer static assay-recorded": "channels_last",
    "roll.float32.forward infer dynamic assay-recorded,dynamic": "channels_last",
    "isin.float32.forward infer static assay-recorded": "transposed",
    "any.float32.forward infer static assay-recorded": "transposed",
    "index_add.float32.forward infer static assay-recorded": "channels_last",
    "index_put.float32.forward infer static assay-recorded": "cut_out",
    "index_put.float32.backward train dynamic assay-recorded,dynamic": "whole-0=1 cut_out",
    "normal.float32.forward infer static assay-recorded": "channels_last",
}
"""Layouts in which samples of a batch once lay otherwise than eager's, by that batch."""
KNOWN = ledger.read()
UNITS = plan(strides.batches(), ("assay-recorded",), "", MODES, SHAPES, Shard())


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def failures(unit: Unit, chosen: Sequence[Sample]) -> list[object]:
    """What of these samples of a unit is neither as eager nor in the ledger, with the command that replays it."""
    names = {sample.name for sample in chosen}

    def only(samples: Sequence[Sample]) -> list[Sample]:
        return [sample for sample in samples if sample.name in names]

    tally = run_batch(unit.batch, How(unit.backend, 0, "strides", only=only))
    replay = f"assay run strides --filter {unit.batch.name} --mode {unit.batch.mode}"
    bad = [result for result in tally.failures if not judged(result, KNOWN).passes]
    return [(replay, result.case, result.verdict, result.detail, result.differences) for result in bad]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if hashed(unit.key) % EVERY == 0], ids=lambda unit: unit.key.replace(" ", "-")
)
def test_strides_are_those_of_eager(unit: Unit) -> None:
    assert not failures(unit, unit.batch.make(0)[: MOST[unit.batch.shapes[0]]])


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.key in MENDED], ids=lambda unit: unit.key.replace(" ", "-")
)
def test_strides_once_mended_stay(unit: Unit) -> None:
    chosen = [sample for sample in unit.batch.make(0) if sample.name.endswith(MENDED[unit.key])]
    assert chosen and not failures(unit, chosen[: MOST[unit.batch.shapes[0]]])


def test_strides_are_of_every_operator_in_every_layout() -> None:
    names = {unit.batch.group for unit in UNITS}
    assert len(names) > 500 and {"roll.float32", "nn.functional.layer_norm.float32", "stack.float32"} <= names
    (unit,) = [unit for unit in UNITS if unit.key == "log_softmax.float32.forward infer static assay-recorded"]
    layouts = {sample.name.rpartition(" ")[2] for sample in unit.batch.make(0)}
    sizes = {sample.name.split(" ")[1].partition("-")[2] for sample in unit.batch.make(0)}
    assert layouts == {"contiguous", *strides.ALL_LAYOUTS} and {"0=0", "0=1", "1=0", "1=1"} <= sizes
