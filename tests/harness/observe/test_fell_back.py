"""What runs in eager for the backend's own reasons is `fell-back`, and an error of our compiler is a `crash`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from assay.compiler import journal
from assay.compiler.autograd import joint
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS
from assay.compiler.entry.dynamo import assay
from assay.compiler.fallback import nodes_of
from assay.harness.backends.registry import Backend
from assay.harness.case import case
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.protocol.acts import DEFAULT, FURTHER
from assay.harness.report.documents import Row, total
from assay.harness.run import RunRequest, run_case

COLD = "assay,warm=False"


@case()
def layered() -> Any:
    w = torch.randn(4, 4, requires_grad=True)
    return lambda x: torch.nn.functional.gelu(x @ w).sum(-1), (torch.randn(3, 4),), {}


@case()
def refused() -> Any:
    """Eager refuses it by a check of its own."""
    return lambda x: torch.nn.functional.huber_loss(x + 1, x, delta=-1.0), (torch.randn(3),), {}


@torch.library.custom_op("fell_back_tests::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    return x + 1


shifted.register_fake(torch.empty_like)
shifted.register_autograd(lambda ctx, tangent: tangent.view(7, 7))


@case(modes=("train",))
def refused_in_backward() -> Any:
    """Eager's forward runs, and its backward raises."""
    return lambda x: shifted(x).sin(), (torch.randn(3, requires_grad=True),), {}


@case(modes=("infer",))
def scattered() -> Any:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return torch.slice_scatter(x, x[1:2], 0, 0, 1) * w + 1

    return program, (torch.ones(3), torch.ones(3)), {}


@case(modes=("infer",))
def hidden_from_dynamo() -> Any:
    program = torch._dynamo.disable(lambda x: x.sin() + 1)
    return program, (torch.randn(3),), {}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


PLAINLY = (*DEFAULT["infer"], *FURTHER["other sizes"]["infer"])
"""Without unusual ways: in inference mode Dynamo leaves an input whose data is assigned as it was."""


def run(program: Any, backend: str, mode: str = "infer") -> Result:
    return run_case(program, mode, backend, RunRequest(timed=False, quick=True))


@pytest.fixture
def wrong_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**DECOMPOSITIONS, torch.ops.aten.gelu.default: raising(KeyError("aten.native_gelu"))}
    monkeypatch.setattr("assay.compiler.entry.dynamo.DECOMPOSITIONS", table)


@pytest.mark.usefixtures("wrong_decomposition")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_fell_back_an_error_of_a_decomposition_is_a_crash(mode: str) -> None:
    found = run(layered, COLD, mode)
    assert found.verdict == "crash" and "KeyError at " in found.detail, found
    assert "test_fell_back.py:" in found.detail and not found.eager


def test_fell_back_an_error_while_recording_gradients_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "_copied_if_held", raising(ValueError("no such tangent")))
    found = run(layered, COLD, "train")
    assert found.verdict == "crash" and "ValueError at " in found.detail and "no such tangent" in found.detail, found
    assert "test_fell_back.py:" in found.detail


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError("x"), RuntimeError("x")])
@pytest.mark.parametrize(
    "place", ["assay.compiler.pipeline.differentiate", "assay.compiler.pipeline.lower", "assay.compiler.pipeline.fuse"]
)
def test_fell_back_an_error_of_any_stage_is_a_crash(
    place: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, raising(error))
    found = run(layered, COLD, "train")
    assert found.verdict == "crash" and type(error).__name__ in found.detail, found


@pytest.mark.usefixtures("wrong_decomposition")
def test_fell_back_a_user_gets_eager_and_a_warning() -> None:
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(5)
    compiled = torch.compile(torch.nn.functional.gelu, backend=assay, options={"warm": False})
    torch.testing.assert_close(compiled(x), torch.nn.functional.gelu(x))
    assert journal.totals()["eager_graphs"] == 1 and list(journal.totals()["eager"].values()) == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["assay,target=aten", "assay-aot"])
def test_fell_back_what_eager_refuses_is_no_fall(backend: str) -> None:
    assert run(refused, backend).verdict == run(refused_in_backward, backend, "train").verdict == "same"


def test_fell_back_names_its_reason_and_its_share() -> None:
    """What keeps the strides of what it is called on is cut out; the rest is compiled."""
    found = run_case(scattered, "infer", "assay,target=aten", RunRequest(timed=False, quick=True, protocol=PLAINLY))
    assert found.verdict == "fell-back" and "slice_scatter" in found.detail, found
    in_eager = sum(found.eager.values())
    assert (in_eager, found.nodes) == (1, 9)
    assert f"{in_eager} of {found.nodes} nodes ({in_eager / found.nodes:.0%}) ran in eager" in found.detail


def test_fell_back_nodes_are_in_the_denominator() -> None:
    known = ledger.Known("scattered", "infer", "assay*", "fell-back", "x", "x", datetime.date(2999, 1, 1))
    result = run_case(scattered, "infer", "assay,target=aten", RunRequest(timed=False, quick=True, protocol=PLAINLY))
    judgement = ledger.judge(result, [known], datetime.date(2026, 1, 1))
    assert judgement.passes and not ledger.judge(result, [], datetime.date(2026, 1, 1)).passes
    totals = total([Row(result, judgement)])
    assert totals.nodes >= 6 and totals.nodes_generated == 0 and totals.verdicts == {"fell-back": 1}


def itself(graph: fx.GraphModule, example_inputs: object) -> Any:
    return graph.forward


def swallowed(graph: fx.GraphModule, example_inputs: object) -> Any:
    torch._dynamo.config.suppress_errors = True
    raise KeyError("x")


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(("name", "reason"), [("itself", "returned the graph"), ("swallowed", "raised KeyError")])
def test_fell_back_a_backend_that_gives_all_back(name: str, reason: str, mode: str) -> None:
    """Acts that are there for an error, as the backward through a freed graph, hide nothing."""
    request = RunRequest(timed=False, protocol=DEFAULT[mode])
    found = run_case(layered, mode, f"{__name__}:{name}", request)
    assert found.verdict == "fell-back" and reason in found.detail and "(100%)" in found.detail, found
    assert not torch._dynamo.config.suppress_errors


@pytest.mark.parametrize("name", ["eager", "aot_eager", "assay.harness.selftest.wrong_backends:right"])
def test_fell_back_not_a_rung_that_runs_in_eager_by_design(name: str) -> None:
    assert run(layered, name, "train").verdict == "same"


def test_fell_back_not_what_dynamo_leaves() -> None:
    found = run(hidden_from_dynamo, "assay,target=aten")
    assert found.verdict == "same" and "Dynamo leaves all of it" in found.detail


def test_fell_back_a_backend_that_is_given_no_graph() -> None:
    lazy = Backend("lazy", lambda function: function, uses_dynamo=True)
    found = run_case(layered, "infer", lazy, RunRequest(timed=False))
    assert found.verdict == "fell-back" and "gives another one some" in found.detail, found


def test_fell_back_nodes_are_calls_of_the_graph_and_of_those_inside() -> None:
    inner = fx.symbolic_trace(lambda x: x.sin().cos())
    outer = fx.symbolic_trace(lambda x: x.split(2)[0] + 1)
    outer.add_submodule("inner", inner)
    assert nodes_of(inner) == 2 and nodes_of(outer) == 4


class FailsLater:
    """A backend whose compiled program raises from a call on."""

    def __init__(self, from_call: int) -> None:
        self.calls, self.from_call = 0, from_call

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls >= self.from_call:
                raise RuntimeError("the arena is full")
            return function(*args)

        return call


def test_timing_that_raises_is_a_crash() -> None:
    found = run_case(layered, "infer", Backend("late", FailsLater(60)))
    assert found.verdict == "crash" and "the arena is full" in found.detail and "to be timed" in found.detail
    assert found.ms is None


@case(modes=("infer",))
def raises_in_time() -> Any:
    calls: list[int] = []

    def program(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 26:
            raise RuntimeError("used up")
        return x + 1

    return program, (torch.ones(3),), {}


def test_timing_that_raises_in_eager_too_is_none() -> None:
    found = run_case(raises_in_time, "infer", "eager-none")
    assert found.verdict in ("same", "reference-unstable") and found.ms is None, found


def test_timing_tells_its_quartiles() -> None:
    found = run_case(layered, "infer", "eager-none")
    assert found.ms_spread and found.eager_ms_spread and found.speed_spread and found.ms is not None
    assert found.ms_spread[0] <= found.ms <= found.ms_spread[1]


@case(modes=("train",))
def written_without_elements() -> Any:
    """Eager's backward fails if it is asked for, which nobody does of what has no elements and is not returned."""

    def f(x: Tensor) -> tuple[()]:
        x.mul_(x)
        return ()

    return f, (torch.zeros(0, requires_grad=True).clone(),), {}


def test_a_backward_that_would_fail_for_what_a_call_writes_is_no_error_of_ours() -> None:
    result = run(written_without_elements, "assay", "train")
    assert result.verdict in ("same", "fell-back"), result.differences


@case(modes=("train",))
def view_written_behind_its_saved_result() -> Any:
    """Eager's backward fails if it is asked for: `exp_` saves what the next line writes. The call itself returns."""

    def f(x: Tensor) -> float:
        x.exp_()
        x[:2] = 1
        return 1.0

    return f, (torch.zeros(7, requires_grad=True).clone()[1:6],), {}


def test_a_backward_that_would_fail_for_a_view_that_a_call_writes_is_no_error_of_ours() -> None:
    result = run(view_written_behind_its_saved_result, "assay", "train")
    assert result.verdict in ("same", "fell-back"), result.differences
