"""A slice of the floats that change from call to call; the whole is `python -m assay.suites.changing_floats`."""

from __future__ import annotations

import pytest
import torch

from assay.suites.changing import sliced
from assay.suites.changing_floats import FORMS, Run, runs

EVERY = 60
MENDED = {
    *(("new_full", torch.int32, False), ("masked_fill", torch.float16, True), ("addcmul", torch.float16, True)),
    *(("pad", torch.float16, True), ("norm beside a product", torch.float32, True), ("lerp", torch.int32, True)),
    ("elu", torch.float32, True),
}
"""Forms that once took what eager refuses, or lost the sign of a zero."""
CHOSEN = [run for run in runs() if (run.form, run.dtype, run.is_read) in MENDED]


@pytest.mark.parametrize("run", [*CHOSEN, *sliced(runs(), EVERY)], ids=lambda run: run.name)
def test_changing_floats_are_as_in_eager(run: Run) -> None:
    found = run.differences()
    assert not found, "\n".join(map(str, found))


def test_changing_floats_finds_a_wrong_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that is not the same from call to call stands for one that is compiled wrongly."""
    calls = iter(range(1000))
    monkeypatch.setitem(FORMS, "other each time", lambda x, number: x * 0 + next(calls))
    assert Run("other each time", torch.float32, True).differences()
