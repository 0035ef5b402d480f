"""What the numbers of twins are held to: replays of their steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from assay.harness.backends.registry import resolve
from assay.harness.search.twin import Comparison, Step, Subject, Twin, replay, replay_in_float64
from assay.suites.programs.subjects import Norms, detached


def driven(subject: Subject, *steps: Step) -> Twin:
    """The twin after the steps. Raises: Diverged."""
    twin = Twin(subject, resolve("assay"))
    for step in (subject.setup(), *steps):
        twin.do(step)
    return twin


def call(name: str, argument: str) -> Step:
    return Step(f"{name} = f({argument})", arguments=(argument,))


def test_replays_leave_alone_what_has_been_compiled() -> None:
    """A replay steps over the reset, too; the last call is like the one before, and compiles nothing."""
    twin = driven(
        Subject(detached),
        Step("x1 = torch.randn((4, 4))", draws=True),
        call("y2", "x1"),
        Step("torch._dynamo.reset()"),
        call("y4", "y2[0]"),
        call("y5", "y2[0]"),
    )
    assert twin.compiles == 2 and not twin.is_over


def test_what_cancels_in_eager_is_held_to_float64() -> None:
    """Behind a batch norm of two rows nearly nothing is left of a gradient; eager is 0.4 % from float64 there."""
    draw = Step("base_x1 = torch.randn((4, 2))\nx1 = base_x1.t()", draws=True)
    steps = draw, call("y2", "x1"), call("y3", "x1"), Step("y3.sum().backward()")
    twin = driven(Subject(Norms), *steps)
    wide = replay_in_float64(twin.subject, twin.steps).namespace["model"].linear.weight.grad
    own = twin.eager.namespace["model"].linear.weight.grad
    assert wide.dtype == torch.float64 and own.dtype == torch.float32
    assert ((own - wide).abs() > 1e-4 * wide.abs()).any()


def test_a_wrong_number_is_found_where_float64_tells() -> None:
    subject = Subject(detached)

    def wrong(gm: fx.GraphModule, inputs: object) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *args: tuple(each * 1.0001 for each in gm.forward(*args))

    twin = Twin(subject, resolve("assay"))
    twin.ours.namespace["compile"] = lambda function: torch.compile(function, backend=wrong)
    for step in (subject.setup(), Step("x1 = torch.randn((4, 4))", draws=True)):
        twin.do(step)
    told = ""
    try:
        twin.do(call("y2", "x1"))
    except AssertionError as error:
        told = str(error)
    assert "anchored on float64" in told


def test_views_of_what_was_drawn_move_with_it() -> None:
    steps = [Step("base_x1 = torch.randn((4, 2))\nx1 = base_x1.t()", draws=True)]
    moved, eager = (replay(Subject(detached), steps, seed).namespace for seed in (1, 2))
    assert torch.equal(moved["x1"], moved["base_x1"].t()) and not torch.equal(moved["x1"], eager["x1"])


def scaled(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize(("shape", "strides", "told"), [((1, 4), (1, 1), set()), ((2, 4), (1, 2), {"stride"})])
def test_twin_gradient_lies_as_its_leaf_but_for_dimensions_of_one_element(
    shape: tuple[int, ...], strides: tuple[int, ...], told: set[str]
) -> None:
    """The stride of one element follows from the tangent, which a compiled backward does not know beforehand."""
    twin = driven(Subject(scaled), Step(f"x1 = torch.randn({shape}).requires_grad_()", draws=True), call("y2", "x1"))
    laid = f"torch.empty_strided({shape}, {strides}).fill_(2)"
    twin.eager.run(Step("y2.sum().backward()"))
    twin.ours.run(Step(f"y2.sum().backward()\nx1.grad = {laid}"))
    compared = Comparison(twin.eager, twin.ours, lambda path: [], lambda path: "not asked", is_coarse=False)
    assert {difference.field for difference in compared.differences()} == told


def test_twin_result_has_the_stride_of_one_element_too() -> None:
    twin = driven(Subject(scaled), Step("x1 = torch.ones(1, 4)"), call("y2", "x1"))
    twin.ours.run(Step("y2 = torch.empty_strided((1, 4), (1, 1)).fill_(2)"))
    twin.eager.run(Step("y2 = torch.empty_strided((1, 4), (4, 1)).fill_(2)"))
    compared = Comparison(twin.eager, twin.ours, lambda path: [], lambda path: "not asked", is_coarse=False)
    assert {difference.field for difference in compared.differences()} == {"stride"}
