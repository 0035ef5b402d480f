"""The dtypes and layouts of a call: what each tensor is called, and that rows and reports have them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from assay.harness import outcome
from assay.harness.batches.batch import Tally
from assay.harness.batches.batch_report import Found, document
from assay.harness.batches.batch_run import Ended, Shard, Unit
from assay.harness.batches.sample import Batch
from assay.harness.case import Case
from assay.harness.observe.traits import layout_of, traits_of
from assay.harness.outcome import Result
from assay.harness.remember.reports import reported
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, run_case

ROOM = torch.zeros(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        (ROOM, "contiguous"),
        (ROOM[1:], "contiguous"),
        (torch.zeros(1, 0), "contiguous"),
        (ROOM.to(memory_format=torch.channels_last), "channels_last"),
        (ROOM[0, 0].t(), "transposed"),
        (ROOM.permute(3, 1, 0, 2), "transposed"),
        (ROOM[..., ::2], "strided"),
        (ROOM[:, 1], "strided"),
        (torch.zeros(3, 1).expand(3, 4), "expanded"),
        (torch.eye(2).to_sparse(), "sparse_coo"),
    ],
)
def test_layouts_have_names(tensor: Tensor, name: str) -> None:
    assert layout_of(tensor) == name


def test_traits_are_of_all_tensors_each_once() -> None:
    found = traits_of([torch.zeros(2), torch.zeros(2, 3).t(), torch.zeros(2, dtype=torch.int64), torch.ones(3)])
    assert (found.dtypes, found.layouts) == (("float32", "int64"), ("contiguous", "transposed"))


def test_rows_say_their_dtypes_and_layouts_and_are_read_again() -> None:
    layer = Case("layer", lambda: (torch.nn.Linear(2, 2).double(), (torch.ones(2, 3).double().t(),), {}), ("infer",),
                 (), ("tiny",))  # fmt: skip
    row = run_case(layer, "infer", "eager", RunRequest(timed=False))
    assert (row.dtypes, row.layouts) == (("float64",), ("contiguous", "transposed"))
    data = finite(dataclasses.asdict(row))
    assert outcome.read(data).layouts == row.layouts
    older = {name: value for name, value in data.items() if name not in ("dtypes", "layouts")}
    assert outcome.read(older).dtypes == ()


def test_batches_are_rows_with_the_traits_of_their_samples() -> None:
    """Those that are as eager: each other sample is a row of its own."""
    tally = Tally()
    for layout in ("contiguous", "transposed"):
        tally.judged(Result("x", "infer", "mine", "same", dtypes=("float32",), layouts=(layout,)))
    tally.judged(Result("ops.add.float32.forward[2]", "infer", "mine", "crash", dtypes=("float32",)))
    unit = Unit(Batch("add.float32.forward", "add.float32", "infer", lambda seed: ()), "mine")
    found = Found((), suite="ops")
    found.add(Ended(unit, Tally.read(tally.data()), 1.0))
    same, crashed = [each.result for each in reported(document(found, [unit], {}, Shard()))]
    assert (same.case, same.verdict, same.detail) == ("ops.add.float32.forward", "same", "2 of 3 samples")
    assert same.layouts == ("contiguous", "transposed") and crashed.case.endswith("[2]")
    assert reported(document(Found(()), [unit], {}, Shard())) and not list(reported({"results": []}))
