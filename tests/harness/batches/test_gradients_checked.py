"""`assay.harness.batches.gradients`: what torch's checks say of a backend, and of eager itself, as verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from assay.compiler.errors import Unsupported
from assay.harness.backends.registry import resolve
from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.gradients import FIELDS, Checks
from assay.harness.batches.sample import Batch, Sample
from assay.harness.case import Case
from assay.harness.outcome import Result

HERE = "tests.harness.batches.test_gradients_checked"


class _Bent(torch.autograd.Function):
    """The cube, whose gradient has a wrong gradient; with `is_bent_at_once` the first is wrong already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_bent_at_once: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.is_bent_at_once = is_bent_at_once
        return x**3

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return given * 3 * (x if ctx.is_bent_at_once else x.detach() ** 2), None


def bent_twice(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Right values and gradients, whose own gradients are not."""

    def run(x: Tensor) -> tuple[Tensor]:
        return (_Bent.apply(x, False),)  # type: ignore[no-untyped-call]

    return run


def refuses(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    raise Unsupported("not this one")


def cube(x: Tensor) -> Tensor:
    return x**3


def drawn(x: Tensor) -> Tensor:
    return cube(x) * torch.rand(2)


def bent_second(x: Tensor) -> Tensor:
    return _Bent.apply(x, False)  # type: ignore[no-any-return, no-untyped-call]


def bent_first(x: Tensor) -> Tensor:
    return _Bent.apply(x, True)  # type: ignore[no-any-return, no-untyped-call]


def leaf() -> Tensor:
    return torch.tensor([0.5, 1.5], dtype=torch.float64).requires_grad_()


def judge(function: Callable[..., Any], backend: str, checks: Checks | None = None) -> Result:
    case = Case("toys.one", lambda: (function, (leaf(),), {}), ("train",), (), ("tiny",))
    return (checks or Checks()).judge(case, resolve(backend), 0)


@pytest.mark.parametrize(
    "function, backend, verdict, fields",
    [
        (cube, "eager", "same", []),
        (cube, "tests.toy_batches:doubles_gradients", "diverged", ["gradient"]),
        (cube, f"{HERE}:bent_twice", "diverged", ["second gradient"]),
        (cube, f"{HERE}:refuses", "unsupported", []),
        (cube, "aot_eager", "crash", []),
        (drawn, "eager", "same", []),
        (bent_second, "eager-none", "no-oracle", []),
        (bent_first, "eager-none", "no-oracle", []),
    ],
)
def test_gradients_verdict_is_of_the_backend_where_eager_passes(
    function: Callable[..., Any], backend: str, verdict: str, fields: list[str]
) -> None:
    result = judge(function, backend)
    assert (result.verdict, [found.field for found in result.differences]) == (verdict, fields), result.detail
    assert judged(result, ()).passes == (verdict in ("same", "no-oracle"))
    if verdict == "no-oracle":
        assert "eager rejects the" in result.detail
    for found in result.differences:
        assert found.field in FIELDS and "passes in eager" in found.detail


def test_gradients_of_one_order_are_all_that_is_asked_for() -> None:
    assert judge(cube, f"{HERE}:bent_twice", Checks(orders=1)).verdict == "same"
    assert judge(bent_second, "eager-none", Checks(orders=1)).verdict == "same"


def test_gradients_that_eager_does_not_settle_say_which_and_hold_the_other() -> None:
    """The second order fails in eager; the first is the backend's affair all the same."""
    result = judge(bent_second, "tests.toy_batches:doubles_gradients")
    assert (result.verdict, [found.field for found in result.differences]) == ("diverged", ["gradient"])
    assert "eager rejects the second gradient itself" in result.detail


@pytest.mark.parametrize("is_fast, mode", [(True, "fast"), (False, "exact"), (None, "exact")])
def test_gradients_say_the_mode_of_a_failing_check(is_fast: bool | None, mode: str) -> None:
    result = judge(cube, "tests.toy_batches:doubles_gradients", Checks(is_fast=is_fast))
    assert f"({mode} mode)" in result.differences[0].detail


def test_gradients_of_a_batch_are_one_compile_a_sample() -> None:
    def make(seed: int) -> list[Sample]:
        return [Sample(str(number), cube, (leaf(),), {}) for number in range(2)]

    batch = Batch("toys.float64.gradgradcheck", "toys", "train", make, is_together=False, judge=Checks().judge)
    tally = run_batch(batch, How("assay", 0, "toys"))
    assert (tally.samples, dict(tally.verdicts), tally.compiles) == (2, {"same": 2}, 2) and tally.nodes_generated
