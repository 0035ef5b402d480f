"""The plugin: a right backend passes, a wrong one fails with what differs, and the rows go to a store."""

from __future__ import annotations

import importlib.util
import signal
import time
from pathlib import Path

import pytest
import torch

from assay.harness.captor import Test
from assay.harness.discover import DiscoverError, discover
from assay.harness.held_by_pytest import Holder, Wanted
from assay.harness.outcome import Result
from assay.harness.processes.time_up import limited
from assay.harness.run import RunRequest, run_case
from tests.sources import ROOT

pytest_plugins = ["pytester"]
TESTS = """
import torch
from torch import nn

def test_of_a_module(same_as_eager):
    assert same_as_eager(nn.Sequential(nn.Linear(3, 3), nn.GELU()), torch.randn(2, 3)).mode == "train"

def test_of_a_function(same_as_eager):
    assert same_as_eager(torch.sin, torch.randn(2)).mode == "infer"
"""
PARAMETERS = """
import pytest

class TestOfDtypes:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_sin(self, same_as_eager, dtype):
        same_as_eager(torch.sin, torch.randn(2, dtype=dtype))

def test_nothing():
    pass
"""
WRONG = "tests.harness.locate.wrong_gelu:wrong"
HANGS = """
import torch
from tests.harness.locate import hanging

def test_that_hangs(same_as_eager):
    same_as_eager(hanging.program, torch.randn(2))

def test_of_a_function(same_as_eager):
    same_as_eager(torch.sin, torch.randn(2))
"""
TWO_CALLS = """
import torch

def test_of_two(same_as_eager):
    same_as_eager(torch.sin, torch.randn(2))
    same_as_eager(torch.nn.functional.gelu, torch.randn(3))
"""
HANGING = "tests.harness.locate.hanging"
PLUGIN = ("-p", "no:assay", "-p", "assay.harness.pytest_plugin", "-p", "no:cacheprovider")
"""Where the package is installed, its entry point would load the plugin a second time."""


def test_plugin_holds_a_users_functions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_users=TESTS)
    pytester.runpytest_inprocess(*PLUGIN, "--assay-backend=aot_eager").assert_outcomes(passed=2)
    ran = pytester.runpytest_inprocess(*PLUGIN, f"--assay-backend={WRONG}")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*train: diverged*", "*values at step 1: output*more places)"])
    ran.stdout.no_fnmatch_line("*torch.__trace*")


def test_plugin_makes_a_case_of_a_test(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_users=f"{TESTS}\n{PARAMETERS}")
    (case,) = discover((f"{path}::test_of_a_module",))
    assert (case.name, case.modes) == ("test_users.py::test_of_a_module", ("train",))
    assert discover((case.origin,))[0].name == case.name
    assert run_case(case, "train", WRONG, RunRequest(timed=False)).verdict == "diverged"
    (of_doubles,) = discover((f"{path}::TestOfDtypes::test_sin[dtype1]",))
    _, (x,), _ = of_doubles.make("tiny")
    assert of_doubles.modes == ("infer",) and x.dtype == torch.float64
    for name, said in (("test_nothing", "hands nothing to `same_as_eager`"), ("test_missing", "not found")):
        with pytest.raises(DiscoverError, match=said):
            discover((f"{path}::{name}",))


def test_plugin_loads_torch_for_none_but_its_own_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_users="import sys\ndef test_of_a_user():\n    assert 'torch' not in sys.modules\n")
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_plugin_refuses_a_backend_that_does_not_exist(pytester: pytest.Pytester) -> None:
    ran = pytester.runpytest_inprocess(*PLUGIN, "--assay-backend=inducter")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["*did you mean 'inductor'*"])


@pytest.mark.skipif(importlib.util.find_spec("sqlalchemy") is None, reason="the store needs SQLAlchemy")
def test_plugin_records_in_a_store(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the wrong backend, in a process that begins elsewhere
    pytester.makepyfile(test_users=TESTS)
    url = f"sqlite:///{tmp_path}/store.sqlite"
    pytester.runpytest_subprocess(*PLUGIN, f"--assay-record={url}", f"--assay-backend={WRONG}")
    store = importlib.import_module("assay.harness.remember.store").Store.open(url)
    (run,) = store.runs()
    found = {row.result.case: row.result.verdict for row in store.rows(run)}
    assert found == {"test_users.py::test_of_a_module": "diverged", "test_users.py::test_of_a_function": "same"}
    store.engine.dispose()


def test_plugin_fails_a_test_whose_time_is_up_and_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_users=HANGS)
    ran = pytester.runpytest_inprocess(*PLUGIN, f"--assay-backend={HANGING}:in_python", "--assay-timeout=5")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*timeout not done after 5 s. It was at:*", "*hanging.py*in run*"])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["in_compiled_code", "by_a_signal"])
def test_plugin_fails_a_test_that_hangs_in_compiled_code_or_dies(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_users=HANGS)
    options = (f"--assay-backend={HANGING}:{name}", "--assay-timeout=30", "--assay-isolate")
    ran = pytester.runpytest_subprocess(*PLUGIN, *options)
    ran.assert_outcomes(passed=1, failed=1)
    said = "timeout not done after 30 s" if name == "in_compiled_code" else "crash killed by SIGKILL"
    ran.stdout.fnmatch_lines([f"*{said}*", *(["*hanging.py*in run*"] if name == "in_compiled_code" else [])])


def test_plugin_names_the_calls_of_a_test(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Each has a row of its own, and is a case by its name."""
    path = pytester.makepyfile(test_users=TWO_CALLS)
    kept: list[Result] = []
    holder = Holder(Wanted(WRONG), kept.append)
    for _ in range(2):
        holder.hold(Test("test_users.py::test_of_two", path), torch.sin, (torch.randn(2),), {})
    assert [row.case for row in kept] == ["test_users.py::test_of_two", "test_users.py::test_of_two (call 2)"]
    (second,) = discover((f"{path}::test_of_two (call 2)",))
    function, (x,), _ = second.make("tiny")
    assert function is torch.nn.functional.gelu and x.shape == (3,)
    with pytest.raises(DiscoverError, match="hands nothing"):
        discover((f"{path}::test_of_two (call 3)",))


def test_limit_of_time_ends_what_catches_everything_and_puts_the_timer_back() -> None:
    signal.setitimer(signal.ITIMER_REAL, 600)
    with limited(0.2) as limit:
        while True:
            time.sleep(10)
    assert "not done after 0.2 s" in limit.told and "time.sleep(10)" in limit.told
    with limited(60) as limit:
        pass
    assert limit.told == "" and 0 < signal.setitimer(signal.ITIMER_REAL, 0)[0] <= 600
