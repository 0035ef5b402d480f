"""Verdicts that are neither same nor diverged, and the numbers that a row carries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.backends.registry import Backend, resolve
from assay.harness.calls.clone import Call
from assay.harness.calls.errors import is_refusal, is_same_error, unwrapped
from assay.harness.case import case
from assay.harness.observe.observation import Script, cotangent, observe
from assay.harness.observe.scripts import acts_for
from assay.harness.protocol.acts import NONE, SAME, Act
from assay.harness.run import RunRequest, run_case

CALLS: list[int] = []


UNTIMED = RunRequest(timed=False)


@case()
def draws_from_elsewhere() -> Any:
    """Its values come from a counter that no seed resets."""

    def program(x: Tensor) -> dict[str, Tensor]:
        CALLS.append(1)
        return {"moving": x + len(CALLS), "steady": x * 2}

    return program, (torch.randn(3),), {}


@case()
def dropout() -> Any:
    return torch.nn.Dropout(0.5), (torch.randn(50, requires_grad=True),), {}


@case()
def breaks() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    return program, (torch.randn(3),), {}


@case(tags=("hooks",))
def ordered() -> Any:
    return (
        (lambda x, y: x.sin() * y.cos()),
        (torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)),
        {},
    )


@case()
def warns() -> Any:
    def program(x: Tensor) -> Tensor:
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        return x + 1

    return program, (torch.randn(3),), {}


@case()
def appends() -> Any:
    def program(x: Tensor, log: list[int]) -> Tensor:
        log.append(len(log))
        return x + 1

    return program, (torch.randn(3), []), {}


@case()
def written_before_error() -> Any:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        return x[9]

    return program, (torch.randn(3),), {}


def changed(change: Callable[[Any], Any], own: bool = False) -> Backend:
    return Backend("changing", lambda function: lambda *args: change(function(*args)), own)


@case(modes=("infer",))
def beyond_single() -> Any:
    def program(x: Tensor) -> Tensor:
        return (x + 5).exp().exp()

    return program, (torch.full((3,), 1e-3, dtype=torch.float64),), {}


@case(modes=("infer",))
def single_in_double() -> Any:
    def program(x: Tensor, y: Tensor) -> Tensor:
        y[:1] = x.var(0)
        return y * 2

    return program, (torch.arange(12.0) ** 1.5, torch.zeros(3, dtype=torch.float64)), {}


@case(modes=("infer",))
def double_of_single() -> Any:
    return lambda x: x.double().sin(), (torch.arange(12.0) / 7,), {}


@case(modes=("infer",))
def drawn_in_single() -> Any:
    return lambda x: torch.rand_like(x).sin_().double(), (torch.zeros(64),), {}


def drawn_off_by(error: float) -> Backend:
    return Backend("off", lambda function: lambda x: torch.rand_like(x).sin_().mul_(1 + error).double())


def first_exp_off_by(error: float) -> Backend:
    return Backend("off", lambda function: lambda x: ((x + 5).exp() * (1 + error)).exp())


def variance_off_by(error: float) -> Backend:
    def program(x: Tensor, y: Tensor) -> Tensor:
        y[:1] = x.var(0) * (1 + error)
        return y * 2

    return Backend("off", lambda function: program)


def test_run_measures_roundings_of_numbers_beyond_float32() -> None:
    """The second exponential multiplies a rounding of the first by 149; in float32 it is infinite. No neighbour of the
    input moves the sum, and so what comes of it."""
    assert run_case(beyond_single, "infer", first_exp_off_by(2.0**-52), UNTIMED).verdict == "same"
    assert run_case(beyond_single, "infer", first_exp_off_by(2.0**-48), UNTIMED).verdict == "diverged"


def test_run_measures_roundings_to_float32_that_end_in_float64() -> None:
    """Eager's own rounding is further from the float64 run than float64 would be; its neighbours tell how far."""
    assert run_case(single_in_double, "infer", variance_off_by(2.0**-23), UNTIMED).verdict == "same"
    assert run_case(single_in_double, "infer", variance_off_by(2.0**-17), UNTIMED).verdict == "diverged"


def test_run_measures_roundings_of_what_is_drawn() -> None:
    """No number that the call is given leads to the result; those that are drawn do."""
    assert run_case(drawn_in_single, "infer", drawn_off_by(2.0**-23), UNTIMED).verdict == "same"
    assert run_case(drawn_in_single, "infer", drawn_off_by(2.0**-17), UNTIMED).verdict == "diverged"


def test_run_holds_float64_of_float32_to_float64() -> None:
    """A rounding of the input moves the result further than a float64 may be off."""
    assert (
        run_case(double_of_single, "infer", changed(lambda output: output * (1 + 2.0**-52)), UNTIMED).verdict == "same"
    )
    assert (
        run_case(double_of_single, "infer", changed(lambda output: output.float().double()), UNTIMED).verdict
        == "diverged"
    )


def test_run_says_what_eager_does_not_agree_on() -> None:
    result = run_case(draws_from_elsewhere, "infer", "eager-none", UNTIMED)
    assert result.verdict == "reference-unstable"
    assert {found.path.split(": ")[1] for found in result.differences} == {"output.moving"}
    assert all("reference-unstable" in found.detail for found in result.differences)


@case()
def iterated() -> Any:
    """Each step doubles what a rounding was, and more."""

    def f(x: Tensor) -> Tensor:
        for _ in range(60):
            x = 3.99 * x * (1 - x)
        return x

    return f, (torch.rand(20_000) * 0.8 + 0.1,), {}


def with_other_roundings(x: Tensor) -> Tensor:
    for _ in range(60):
        x = x * (1 - x) * 3.99
    return x


def test_run_says_where_eager_is_as_far_from_float64_as_another_rounding() -> None:
    reordered = Backend("reordered", lambda function: with_other_roundings)
    result = run_case(iterated, "infer", reordered, UNTIMED)
    assert result.verdict != "same", result
    rolled = changed(lambda output: output.roll(1))
    assert run_case(iterated, "infer", rolled, UNTIMED).verdict == "diverged", "some orbits forget their roundings"
    assert run_case(iterated, "infer", changed(lambda output: output + 2), UNTIMED).verdict == "diverged"


def test_run_finds_a_difference_beside_what_is_unstable() -> None:
    backend = changed(lambda output: {"moving": output["moving"], "steady": output["steady"] + 1})
    result = run_case(draws_from_elsewhere, "infer", backend, UNTIMED)
    assert result.verdict == "diverged"
    assert {found.path for found in result.differences if "reference-unstable" not in found.detail} == {
        f"step {number}: output.steady"
        for number, act in enumerate(acts_for(draws_from_elsewhere, "infer"), 1)
        if act.sizes != NONE
    }, "a result without elements is as eager's"


def redrawn(output: Tensor) -> Tensor:
    """As a backend with a stream of its own would drop out: other elements."""
    return output.flip(0)


def test_run_has_no_oracle_for_a_random_stream_of_its_own() -> None:
    result = run_case(dropout, "train", changed(redrawn, own=True), UNTIMED)
    assert result.verdict == "no-oracle" and "not judged" in result.differences[0].detail
    assert run_case(dropout, "train", changed(redrawn), UNTIMED).verdict == "diverged"


def test_run_judges_all_but_the_draws_of_a_random_stream_of_its_own() -> None:
    result = run_case(dropout, "train", changed(lambda output: output.double(), own=True), UNTIMED)
    assert result.verdict == "diverged" and {"dtype"} < {found.field for found in result.differences}
    assert run_case(dropout, "infer", changed(redrawn, own=True), UNTIMED).verdict == "diverged"


def own_stream(graph: Any, inputs: Any) -> Any:
    return graph.forward


own_stream.has_own_random_stream = True  # type: ignore[attr-defined]
own_stream.runs_in_eager = True  # type: ignore[attr-defined]


def test_run_reads_the_declaration_of_a_random_stream() -> None:
    assert resolve(f"{__name__}:own_stream").has_own_random_stream and not resolve("eager").has_own_random_stream


def test_run_draws_as_eager_does_with_inductor() -> None:
    backend = resolve("inductor")
    with backend.ambient():
        assert torch._inductor.config.fallback_random
    assert not torch._inductor.config.fallback_random


def test_run_counts_graph_breaks_and_times() -> None:
    result = run_case(breaks, "infer", "eager")
    assert result.verdict == "same" and (result.graph_breaks or 0) >= 1
    assert min(result.eager_ms or 0, result.ms or 0, result.compile_s or 0) > 0
    assert (result.nodes, result.nodes_generated, result.fallbacks) == (None, None, {})


@pytest.mark.parametrize("quick", [True, False])
def test_run_compares_the_order_of_gradients_when_asked(quick: bool) -> None:
    def swap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: function(*(tensor * 1 for tensor in (x, y)))

    assert run_case(ordered, "train", "eager-none", UNTIMED).verdict == "same"
    backward_first = Backend("reordering", lambda function: lambda x, y: y.cos() * x.sin())
    result = run_case(ordered, "train", backward_first, RunRequest(timed=False, quick=quick))
    assert {found.field for found in result.differences} == {"hooks"}


@case(tags=("bookkeeping",))
def written_twice() -> Any:
    return (lambda x: x.add_(1).mul_(2)), (torch.randn(3),), {}


def written_once_more(x: Tensor) -> Tensor:
    """What the program does, in three writes."""
    return x.add_(1).mul_(2).mul_(1)


@pytest.mark.parametrize("quick", [True, False])
def test_run_sees_by_how_much_a_version_grew(quick: bool) -> None:
    """A quick run too: it is what a ladder goes by."""
    backend = Backend("writes_once_more", lambda function: written_once_more)
    found = run_case(written_twice, "infer", backend, RunRequest(timed=False, quick=quick))
    assert {difference.field for difference in found.differences} == {"version"}, found


def test_run_sees_warnings_of_the_program() -> None:
    assert run_case(warns, "infer", "eager-none", UNTIMED).verdict == "same"
    silent = Backend("silent", lambda function: lambda x: x + 1)
    assert {found.field for found in run_case(warns, "infer", silent, UNTIMED).differences} == {"warnings"}


def test_run_sees_inputs_that_are_not_tensors() -> None:
    assert run_case(appends, "infer", "eager", UNTIMED).verdict == "same"
    forgetful = Backend("forgetful", lambda function: lambda x, log: x + 1)
    result = run_case(appends, "infer", forgetful, UNTIMED)
    assert {found.field for found in result.differences} == {"structure"}
    assert result.differences[0].path == "step 1: input[1][0]"


def test_run_sees_what_was_written_before_an_error() -> None:
    early = Backend("early", lambda function: lambda x: x[9])
    result = run_case(written_before_error, "infer", early, UNTIMED)
    assert {found.field for found in result.differences} == {"mutation", "version"}


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_observe_same_seed_gives_the_same_run(mode: str) -> None:
    def made() -> Call:
        torch.manual_seed(0)
        return Call(torch.nn.Dropout(0.5), (torch.randn(9, requires_grad=True),), {})

    def script() -> Script:
        acts = (Act(1), Act(1, given=SAME))
        return Script(acts, [made(), None], lambda which: {})

    one, other = (observe(script(), mode, seed=3) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first.outputs["output"].value, second.outputs["output"].value)
        assert first.random == second.random and first.uses_random == (mode == "train")
    assert torch.equal(one[0].outputs["output"].value, one[1].outputs["output"].value) == (mode == "infer")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_observe_cotangents_are_the_same_numbers_in_every_dtype(dtype: torch.dtype) -> None:
    wide = cotangent("output.x", torch.zeros(100, dtype=torch.float64), 5)
    made = cotangent("output.x", torch.zeros(100, dtype=dtype), 5)
    assert torch.equal(made.to(torch.complex128).real, wide) and bool((wide != 0).all())
    assert not torch.equal(cotangent("output.y", wide, 5), wide) and not torch.equal(
        cotangent("output.x", wide, 6), wide
    )


def raised(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def compiled(function: Callable[..., Any], backend: Any = "eager") -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True)


@pytest.mark.parametrize(
    "program",
    [lambda x: x[9], lambda x: x @ x, lambda x: torch.cat([x, x[0]]), lambda x: x.view(7), lambda x: x.sum(5)],
    ids=["index", "matmul", "cat", "view", "dim"],
)
def test_errors_of_the_program_are_found_beneath_dynamo(program: Callable[..., Any]) -> None:
    x = torch.randn(3, 4)
    eager, ours = raised(program, x), raised(compiled(program), x)
    assert is_same_error(eager, ours), f"{eager!r} {ours!r}"
    assert not is_same_error(KeyError(), ours) and not is_refusal(ours)


def test_errors_of_a_backend_are_not_the_program_s() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("the backend's own")

    ours = raised(compiled(torch.sin, broken), torch.randn(3))
    assert str(unwrapped(ours)[-1]) == "the backend's own"
    assert not is_same_error(RuntimeError(), ours) and not is_refusal(ours)


def test_errors_take_a_subclass_for_the_class() -> None:
    assert is_same_error(LookupError(), KeyError()) and not is_same_error(KeyError(), LookupError())
