"""A process that runs batches ends where its GPU runs nothing any more, so that what did that is named and alone."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.harness.batches import batch_worker
from assay.harness.batches.batch import How, Tally
from assay.harness.batches.sample import Batch


class Ended(BaseException):
    """In the place of the end of the process."""


def run_batch(batch: Batch, how: How) -> Tally:
    """Names three samples, one after the other."""
    for name in "012":
        how.said([name])
    return Tally()


def served(monkeypatch: pytest.MonkeyPatch, synchronize: Callable[[], None], device: str) -> list[dict[str, Any]]:
    """What a process says of them, and whether it ends before it has told the batch's end."""
    events = list[dict[str, Any]]()

    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(batch_worker, "run_batch", run_batch)
    request = {"unit": "neg", "backend": "eager", "together": 1, "excluded": []}
    settings = {"seed": 0, "suite": "ops", "device": device}
    batches = {"neg": Batch("neg.forward", "neg", "infer", lambda seed: [])}
    with contextlib.suppress(Ended):
        batch_worker.serve(batches, [json.dumps(request)], settings, events.append)
    return events


def test_the_sample_whose_assertion_failed_is_the_last_that_was_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = list[int]()

    def synchronize() -> None:
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("CUDA error: device-side assert triggered")

    events = served(monkeypatch, synchronize, "cuda")
    assert [event["event"] for event in events] == ["alive", "running", "running"]
    assert events[-1]["samples"] == ["1"]
    assert "device-side assert" in capfd.readouterr().err


def test_on_a_cpu_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize() -> None:
        raise AssertionError("no GPU is looked at")

    events = served(monkeypatch, synchronize, "cpu")
    assert [event["event"] for event in events] == ["alive", "running", "running", "running", "end"]
