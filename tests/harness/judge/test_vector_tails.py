"""Eager at other places in a vector: what it gives there, and that a backend is held to one place or the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from assay.harness.backends.registry import Backend, resolve
from assay.harness.case import case
from assay.harness.discover import discover
from assay.harness.judge.oracle import Oracle
from assay.harness.judge.vector_tails import PLACES, Placed
from assay.harness.observe.observation import WITHOUT_POKES
from assay.harness.observe.scripts import Scripts
from assay.harness.protocol.acts import DEFAULT, steps
from assay.harness.run import RunRequest, _Trial, made_call, run_case
from assay.harness.selftest.wrong_backends.rounded_once import RoundedOnce

INF = float("inf")
TWO_ZEROS = (torch.full((17,), -0.0), torch.zeros(17))


def signs(place: str) -> Tensor:
    with Placed(PLACES[place]):
        return torch.maximum(*TWO_ZEROS).signbit()


def test_placed_gives_every_element_what_eager_gives_at_that_place() -> None:
    as_it_comes = torch.maximum(*TWO_ZEROS).signbit()
    assert as_it_comes.any() and not as_it_comes.all(), "eager has one answer now: these tests need another operator"
    found = [signs(place) for place in PLACES]
    assert all(one.all() or not one.any() for one in found) and found[0][0] != found[1][0]


SCALE = torch.tensor(2.0)
FUNCTIONS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: x + x,
    lambda x: x.exp_().sub_(x[:, :1].clone()).mul_(SCALE),
    lambda x: torch.where(x > 0, x, 0.5),
    lambda x: torch.frexp(x).mantissa,
    lambda x: torch.add(x[:, 0], 1, out=x[:, 1]),
    lambda x: (x.to(torch.bfloat16) * 3, x.int() // 2, x[:0] * 2, SCALE * 3),
    lambda x: torch.nn.functional.dropout(x, 0.5).neg(),
    lambda x: torch.view_as_complex(x.clone().reshape(3, 5, 2)).conj() * 2j,
)


def test_placed_gives_the_bits_of_a_nan_that_is_converted_alone() -> None:
    nan = torch.full((34,), torch.nan)
    alone = torch.empty(34, 2)[:, 0].copy_(nan).to(torch.bfloat16)
    with Placed(PLACES["one by one"]):
        found = nan.to(torch.bfloat16)
    assert torch.equal(found.view(torch.int16), alone.contiguous().view(torch.int16))


@pytest.mark.parametrize("name", ["hardtanh", "relu6", "softshrink", "hardshrink", "hardswish", "elu"])
def test_placed_gives_the_gradient_at_a_nan_of_each_place(name: str) -> None:
    def gradient() -> Tensor:
        x = torch.full((40,), torch.nan, requires_grad=True)
        getattr(torch.nn.functional, name)(x).backward(torch.full((40,), 2.0))
        assert x.grad is not None
        return x.grad.nan_to_num(7.0)

    assert len(set(gradient().tolist())) == 2, "eager has one answer now: these tests need another operator"
    found = []
    for place in PLACES.values():
        with Placed(place):
            found.append(set(gradient().tolist()))
    assert [len(each) for each in found] == [1, 1] and found[0] != found[1]


def test_placed_writes_where_the_program_says() -> None:
    given = torch.arange(8).to(torch.complex64)
    with Placed(PLACES["one by one"]):
        torch.neg(given, out=given)
        resized = torch.neg(given, out=torch.empty(0, dtype=torch.complex64))
    assert given.imag.signbit().all() and resized.shape == (8,)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_placed_changes_nothing_else(function: Callable[[Tensor], Any], place: str) -> None:
    found = []
    for mode in (torch.no_grad(), Placed(PLACES[place])):
        x = torch.linspace(-2, 2, 30).reshape(6, 5).t()
        torch.manual_seed(0)
        with mode:
            result = function(x)
        results = result if isinstance(result, tuple) else (result,)
        found.append(([x._version, *(one._version for one in results)], [one.stride() for one in results], results, x))
    assert found[0][:2] == found[1][:2]
    torch.testing.assert_close(found[0][2:], found[1][2:], rtol=1e-6, atol=0)


def test_placed_sees_gradients() -> None:
    x = torch.randn(40, requires_grad=True)
    expected = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    with Placed(PLACES["one by one"]):
        y = torch.nn.functional.gelu(x)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x), expected)
    assert y.grad_fn is not None


@case(modes=("infer",))
def gelu_of_infinity() -> Any:
    def program(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x) * 2

    return program, (torch.tensor([INF, 1.0, -1.0, INF]),), {}


@case(modes=("infer", "train"), tags=("bookkeeping",))
def largest_of_zeros() -> Any:
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return 1 / torch.maximum(x, y)

    return program, (torch.full((17,), -0.0), torch.zeros(17)), {}


def as_in(change: Callable[[Tensor], Tensor]) -> Backend:
    return Backend("changing", lambda function: lambda *args: change(function(*args)))


IS_NAN = bool(torch.nn.functional.gelu(torch.tensor([INF, 1.0, -1.0, INF])).isnan().any())
differs_by_place = pytest.mark.skipif(not IS_NAN, reason="eager's gelu of infinity is infinity on this processor")


PLAINLY = RunRequest(timed=False, protocol=DEFAULT["infer"])
"""Without the unusual ways: a NaN in an argument is none of these backends' business."""


@differs_by_place
def test_run_leaves_open_what_depends_on_the_place_in_a_vector() -> None:
    infinite = as_in(lambda y: torch.where(y.isnan(), INF, y))
    result = run_case(gelu_of_infinity, "infer", infinite, PLAINLY)
    assert (result.verdict, result.detail) == ("reference-unstable", "eager does the same where it computes one by one")
    assert {found.field for found in result.differences} == {"values"}
    for mode in ("infer", "train"):
        for sign in (-INF, INF):
            backend = as_in(lambda y, sign=sign: torch.full_like(y, sign))  # type: ignore[misc]
            assert run_case(largest_of_zeros, mode, backend, PLAINLY).verdict == "reference-unstable"


@differs_by_place
def test_run_finds_what_eager_does_at_no_place() -> None:
    for change in (lambda y: y.nan_to_num(3.0, INF), lambda y: -y, lambda y: y[:2]):
        assert run_case(gelu_of_infinity, "infer", as_in(change), PLAINLY).verdict == "diverged"
    mixed = as_in(lambda y: torch.where(torch.arange(17) < 3, -INF, INF))
    assert run_case(largest_of_zeros, "infer", mixed, PLAINLY).verdict == "diverged"


@pytest.mark.parametrize(("device", "runs"), [("cpu", len(PLACES)), ("meta", 0)])
def test_places_are_tried_where_a_tensor_is_on_a_cpu(device: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @case(tags=())
    def doubled(size: str) -> Any:
        return torch.mul, (torch.zeros(4), 2), {}

    call = made_call(doubled, "tiny", 0, device)
    scripts = Scripts(doubled, "infer", steps("infer", 1), call, lambda which: call)
    trial = _Trial(doubled, "infer", resolve("eager"), call, 0, scripts, WITHOUT_POKES)
    made = trial._observed(scripts.script()) if device == "cpu" else ()
    counted: list[int] = []
    monkeypatch.setattr(_Trial, "_observed", lambda self, calls: counted.append(1) or made)
    assert trial._place_of(Oracle(made, made, None), made) is None
    assert len(counted) == runs


def within_a_mode(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Rounds once. What an operator of the user's writes by itself is within the mode, too."""

    def run(*args: object) -> Any:
        with RoundedOnce():
            return graph.forward(*args)

    return run


def test_places_excuse_numbers_alone() -> None:
    """A mode changes how often an operator of the user's lets versions grow."""
    (written,) = discover(("semantics.operator_mutates_two_overlapping_inputs",))
    result = run_case(written, "infer", f"{__name__}:within_a_mode,dynamic", RunRequest(timed=False))
    assert result.verdict == "diverged" and {found.field for found in result.differences} == {"version"}
