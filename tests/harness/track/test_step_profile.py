"""A step of our compiler is taken apart: its stages, kernels, memory and states; and kept at the case's row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.compiler.options import Options
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.track.step_profile_worker import STEPS, Timed, Watched, taken_apart


def tiny() -> Case:
    (case,) = discover(("overhead.tiny_function",))
    return case


def test_a_step_is_taken_apart(tmp_path: Path) -> None:
    told = taken_apart(tiny(), "train", "tiny", tmp_path)
    assert {"capture", "fuse", "emit", "python"} <= told["stages"].keys()
    assert [(kernel["graph"], kernel["launches"]) for kernel in told["kernels"]] == [(1, 1), (2, 1)]
    assert all(kernel["bytes"] == 2 * 8 * 4 and kernel["us"] > 0 and kernel["origins"] for kernel in told["kernels"])
    assert told["memory"]["measured"]["points"] and told["memory"]["planned"]["points"]
    assert {"joint", "source_kernels"} <= {state["state"] for state in told["states"]}


def test_a_timed_kernel_computes_what_it_did() -> None:
    watched = Watched(Options.of({"warm": False, "fallback": "error"}, None))

    def program(x: Tensor) -> Tensor:
        return (x.sin() + 1).sum(0)

    x = torch.arange(12.0).view(3, 4)
    torch._dynamo.reset()
    torch.testing.assert_close(watched.wrap(program)(x), program(x))
    assert watched.timed and all(len(each.times_ns) == 1 for each in watched.timed)


def test_a_kernels_time_is_that_of_the_fastest_step() -> None:
    slow, quick = [9000, 11000], [2000, 4000]
    kernel = Timed(1, "kernel_0", ("add", "add", "mul"), 64, slow * (STEPS - 1) + quick)
    told = kernel.told()
    assert (told["launches"], told["us"], told["origins"]) == (2, 3.0, ["add", "mul"])


def test_what_is_kept_is_at_the_cases_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
    from assay.harness.night import step_profiles
    from assay.harness.remember.store import Store
    from assay.harness.site.profiles import profiles_of
    from tests.harness.remember.rows import FACTS, row
    from tests.harness.site.profiled import profile

    result = {"case": "zoo.bert", "mode": "train", "backend": "assay", "verdict": "same", "differences": []}
    told = {"row": result, **profile()}
    monkeypatch.setattr(step_profiles, "profiled", lambda case, *_: dict(told) if case == "zoo.bert" else None)
    with Store.open(f"sqlite:///{tmp_path}/runs.sqlite") as store:
        run = store.begin(FACTS, {})
        store.add(run, row("zoo.other", backend="assay"))
        assert step_profiles.keep_profiles(store, run, 60.0, (("zoo.bert", "train"), ("zoo.gone", "infer"))) == 1
        (kept,) = profiles_of(store, run)
        assert kept.name == "zoo.bert train" and len(kept.kernels) == 3
        assert [each.result.case for each in store.rows(run)] == ["zoo.other", "zoo.bert"]
        assert step_profiles.keep_profiles(store, run, 0.0) == 0
