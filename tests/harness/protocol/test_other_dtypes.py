"""Calls in the other dtype: who is told apart by them, who is not accused, and which programs are left in their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.harness.calls.clone import Call
from assay.harness.case import Case, Made
from assay.harness.observe.scripts import Scripts
from assay.harness.outcome import Result
from assay.harness.protocol.acts import FURTHER, Act, Protocol
from assay.harness.run import RunRequest, run_case

WRONG = "assay.harness.selftest.wrong_backends:spoils_other_dtypes"
MODES = ("infer", "train")


def acts(mode: str) -> Protocol:
    return (Act(1, back=int(mode == "train")), *FURTHER["other dtypes"][mode])


def network() -> Made:
    layers = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 3), nn.Softmax(-1))
    return layers, (torch.randn(4, 5),), {}


def run(backend: str, mode: str) -> Result:
    case = Case("network", network, MODES, (), ("tiny",))
    return run_case(case, mode, backend, RunRequest(protocol=acts(mode), timed=False))


@pytest.mark.parametrize("mode", MODES)
def test_protocol_dtypes_tell_apart_who_is_wrong_in_another(mode: str) -> None:
    result = run(WRONG, mode)
    assert result.verdict == "diverged", result.detail
    assert "in another dtype" in result.differences[0].act


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "assay"])
def test_protocol_dtypes_accuse_nobody_who_is_right(backend: str, mode: str) -> None:
    result = run(backend, mode)
    assert result.verdict == "same", (result.detail, result.differences)


def is_taken(function: Callable[..., object], *args: Tensor) -> bool:
    """Whether the acts in the other dtype stay as they are."""
    own = Call(function, args, {})
    case = Case("program", lambda: (function, args, {}), MODES, (), ("tiny",))
    scripts = Scripts(case, "infer", acts("infer"), own, lambda which: own)
    return any(act.in_other_dtype for act in scripts.in_dtypes_it_takes(0).acts)


def test_protocol_dtypes_are_left_where_they_would_show_nothing() -> None:
    x = torch.randn(4, 5)
    assert is_taken(torch.tanh, x)
    assert is_taken(torch.tanh, x.double()) and is_taken(torch.tanh, x.bfloat16())
    assert not is_taken(lambda x: x.float() * 2, x), "it rounds to float32 on its way"
    assert not is_taken(lambda x: nn.functional.dropout(x, 0.5), x), "it draws"
    assert not is_taken(lambda x: x @ torch.ones(5, 2), x), "eager does not take it"
