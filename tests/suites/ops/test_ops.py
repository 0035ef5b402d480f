"""A slice of the operators, in the default tests: which batches, and which of their samples, a hash of names says.

The whole is `assay run ops`.
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
from assay.suites import ops

EVERY = 200
"""One batch in so many."""
EVERY_REFUSED = 1500
"""One in so many of the batches in refused dtypes, whose samples each take compiles of their own."""
MOST = 16
"""How many samples of a batch."""
MENDED = {
    "conj_physical.int8.out infer static assay": "0 strided",
    "linspace.float64.forward infer static assay": "32 contiguous",
    "native_dropout_backward.int32.forward infer static assay": "0 contiguous",
    "normal.in_place.float32.in_place infer static assay": "0 contiguous",
    "to_sparse.float32.backward train static assay": "0 contiguous",
    "sparse.sampled_addmm.complex128.backward train dynamic assay,dynamic": "0 contiguous",
    "nn.functional.nll_loss.float32.backward train static assay": "14 transposed",
    "nn.functional.nll_loss.float16.forward infer static assay": "17 transposed",
    "nn.functional.max_unpool2d.float32.backward train static assay": "1 transposed",
    "nn.functional.max_unpool2d.float32.compile train static assay": "70 contiguous",
    "nn.GELU.float64.module train static assay": "2 no_batch_dim",
    "complex.errors infer static assay": "2",
    "combinations.int16.forward infer dynamic assay,dynamic": "15 contiguous",
    "combinations.float32.backward train dynamic assay,dynamic": "2 contiguous",
    "masked.normalize.bfloat16.backward train static assay": "5 contiguous",
    "log_softmax.with_dtype.complex64.forward infer static assay": "0 contiguous",
    "_batch_norm_with_update.float16.backward train static assay": "0 contiguous",
    "resize_as_.float32.in_place infer static assay": "0 contiguous",
    "sgn.float32.backward train static assay": "0 contiguous",
    "angle.complex128.forward infer static assay": "0 transposed",
    "floor_divide.float32.forward infer static assay": "3 transposed",
    "broadcast_shapes.float32.forward infer static assay": "1 contiguous",
    "softmax.with_dtype.float32.out infer static assay": "1 transposed",
    "linalg.matrix_norm.float32.backward train static assay": "48 transposed",
    "linalg.eigvals.complex128.backward train static assay": "0 contiguous",
    "nn.functional.normalize.float32.backward train static assay": "2 contiguous",
    "nn.functional.hinge_embedding_loss.float32.backward train static assay": "1 contiguous",
    "nn.functional.dropout.float32.compile infer static assay": "4 contiguous",
    "multinomial.errors infer static assay": "3",
    "linalg.solve_ex.float32.backward train dynamic assay,dynamic": "22 contiguous",
    "polygamma.polygamma_n_2.int8.forward infer static assay": "0 contiguous",
    "native_batch_norm.float16.forward infer static assay": "1 contiguous",
    "ldexp.int8.in_place infer static assay": "0 contiguous",
    "logit.bool.in_place infer static assay": "0 contiguous",
    "nn.functional.soft_margin_loss.float16.backward train static assay": "1 contiguous",
    "lerp.int32.refused infer static assay": "10 forward",
    "floor.bool.refused infer static assay": "0 into",
    "nn.functional.max_pool1d.uint8.refused infer static assay": "343 forward",
    "nn.functional.one_hot.float16.refused infer static assay": "1 forward",
}
"""Samples that once were not as eager, one of each kind, by their batch."""
KNOWN = ledger.read()
UNITS = plan(ops.batches(), ("assay",), "", MODES, SHAPES, Shard())


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def is_chosen(unit: Unit) -> bool:
    return hashed(unit.key) % (EVERY_REFUSED if unit.batch.form == "refused" else EVERY) == 0


def slice_of(samples: Sequence[Sample]) -> list[Sample]:
    """At most so many, in their order."""
    kept = {sample.name for sample in sorted(samples, key=lambda sample: hashed(sample.name))[:MOST]}
    return [sample for sample in samples if sample.name in kept]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if is_chosen(unit)], ids=lambda unit: unit.key.replace(" ", "-")
)
def test_ops_are_as_eager(unit: Unit) -> None:
    batch = unit.batch
    tally = run_batch(batch, How(unit.backend, 0, "ops", only=slice_of))
    replay = f"assay run ops --filter {batch.name} --mode {batch.mode} --shapes {batch.shapes[0]}"
    for result in tally.failures:
        assert judged(result, KNOWN).passes, (replay, result.case, result.verdict, result.detail, result.differences)


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.key in MENDED], ids=lambda unit: unit.key.replace(" ", "-")
)
def test_ops_once_mended_stay_as_eager(unit: Unit) -> None:
    def only(samples: Sequence[Sample]) -> list[Sample]:
        return [sample for sample in samples if sample.name == MENDED[unit.key]]

    tally = run_batch(unit.batch, How(unit.backend, 0, "ops", only=only))
    assert tally.samples == 1 and all(judged(result, KNOWN).passes for result in tally.failures), tally.failures


def test_ops_slice_is_of_every_form() -> None:
    chosen = [unit for unit in UNITS if is_chosen(unit)]
    forms = {(unit.batch.form, unit.batch.mode) for unit in chosen}
    assert {
        ("forward", "infer"),
        ("backward", "train"),
        ("out", "infer"),
        ("in_place", "infer"),
        ("refused", "infer"),
    } <= forms
    assert {unit.backend for unit in chosen} == {"assay", "assay,dynamic"}
