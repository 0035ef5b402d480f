"""Backends that are wrong in one way each: every one must be found, in the fields where it shows and in no other."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.backends.registry import Backend
from assay.harness.case import Case
from assay.harness.case import case as declare
from assay.harness.protocol.acts import FEW, steps
from assay.harness.run import RunRequest, run_case

Function = Callable[..., Any]


@dataclass(frozen=True)
class Corruption:
    """A program, a wrong way to compile it, and where that must show: `found` are the fields of all differences."""

    made: Callable[[], tuple[Function, tuple[Any, ...], dict[str, Any]]]
    wrap: Callable[[Function], Function]
    found: frozenset[str]
    at: str
    """Every difference has this in its path."""
    mode: str = "infer"
    steps: tuple[int, ...] = (1, 2, 3)


def on_output(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Compiles rightly, and changes what comes out."""
    return lambda function: lambda *args, **kwargs: change(function(*args, **kwargs))


def table(*rows: tuple[str, Corruption]) -> Any:
    return pytest.mark.parametrize("corruption", [pytest.param(row, id=name) for name, row in rows])


FOLLOWS = frozenset({"hooks", "earlier"})
"""Fields that a corruption of another may move as well: who accumulates, and what is seen when looked at again."""


def fields(*names: str) -> frozenset[str]:
    return frozenset(names)


def numbers(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(shape, requires_grad=grad)


class ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def doubled() -> Any:
    return (lambda x: x * 2), (numbers(4, 3),), {}


def row_sums() -> Any:
    return (lambda x: x.sum(1, keepdim=True)), (numbers(4, 3),), {}


def a_view() -> Any:
    return (lambda x: x[1:]), (numbers(4, 3),), {}


def two_inputs() -> Any:
    return (lambda x, y: x * 2 + y.sin() * x), (numbers(4, grad=True), numbers(4, grad=True)), {}


def unused_input() -> Any:
    return (lambda x, y: x.exp()), (numbers(4, grad=True), numbers(4, grad=True)), {}


def in_place() -> Any:
    return (lambda x: x.add_(1).sin()), (numbers(4, 3),), {}


def million() -> Any:
    return (lambda x: x.exp() + x.sin()), (numbers(1000, 1000),), {}


def zeros() -> Any:
    return (lambda x: x * 0.0), (torch.ones(8),), {}


def dictionary() -> Any:
    return (lambda x: {"a": x + 1, "b": None, "n": 3}), (numbers(4),), {}


def two_outputs() -> Any:
    return (lambda x: (x + 1, x + 2)), (numbers(4, 3),), {}


def two_equal_outputs() -> Any:
    return (lambda x: (x + 1, x + 1)), (numbers(4, 3),), {}


def raising() -> Any:
    return (lambda x: x[9]), (numbers(4),), {}


def noisy() -> Any:
    return (lambda x: x + torch.rand_like(x)), (numbers(4),), {}


def integers() -> Any:
    return (lambda x: x.argmax(1)), (numbers(64, 8),), {}


def infinite() -> Any:
    return (lambda x: torch.log(x)), (torch.arange(8.0),), {}


def counting() -> Any:
    """Adds to its input, so that its second result is another."""
    return (lambda x: x.add_(1) * 2), (numbers(4),), {}


def warned() -> Any:
    return (lambda x: x + 1), (numbers(4),), {}


def normalized() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (numbers(8, 4),), {}


def one_off(output: Tensor) -> Tensor:
    output.view(-1)[765_432] *= 1 + 1e-5
    return output


def wrong_gradient(factor: float) -> Callable[[Function], Function]:
    return lambda function: lambda x, y: function(ScaleGradient.apply(x, factor), y)


def swapped_gradients(function: Function) -> Function:
    """Each input in the other's place for backward, in its own for the values."""
    return lambda x, y: function(y + (x - y).detach(), x + (y - x).detach())


def gradient_of_unused(function: Function) -> Function:
    return lambda x, y: function(x + 0 * y, y)


def no_write_back(function: Function) -> Function:
    return lambda x: function(x.clone())


def write_without_version(function: Function) -> Function:
    def call(x: Tensor) -> Tensor:
        x.data.copy_(function_input := x.detach().clone().add_(1))
        return function_input.sin()

    return call


def extra_write(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        output = function(x)
        x.add_(0)
        return output

    return call


def stale_buffers(module: Function) -> Function:
    """Puts the running mean back after every call."""
    assert isinstance(module, nn.Sequential)

    def call(x: Tensor) -> Tensor:
        kept = module[1].running_mean.clone()
        output = module(x)
        module[1].running_mean.data.copy_(kept)  # no new version: backward has it saved
        return output

    return call


def other_error(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        raise ValueError("index 9 is out of bounds")

    return call


def no_error(function: Function) -> Function:
    return lambda x: x[3]


def draws_once_more(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        output = function(x)
        torch.rand(1)
        return output

    return call


def reused_seed(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        state = torch.get_rng_state()
        output = function(x)
        torch.set_rng_state(state)
        return output

    return call


def wrong_on_second_call(function: Function) -> Function:
    calls = []

    def call(x: Tensor) -> Any:
        calls.append(1)
        return function(x) * (1.0 if len(calls) == 1 else 1.001)

    return call


def reused_output_buffer(function: Function) -> Function:
    """Hands out the same memory at every call, with the right numbers in it at the time."""
    kept: list[Tensor] = []

    def call(x: Tensor) -> Tensor:
        output = function(x)
        kept[:] = kept or [output]
        return kept[0].detach().copy_(output)

    return call


def secretly_shared(outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two storages over the same memory."""
    one = outputs[0]
    other = torch.from_numpy(one.numpy())
    return one, other


def warns(function: Function) -> Function:
    def call(x: Tensor) -> Any:
        warnings.warn_explicit("careful", UserWarning, "program.py", 1)
        return function(x)

    return call


@table(
    (
        "shape_that_broadcasts",
        Corruption(row_sums, on_output(lambda y: y.expand(4, 3).contiguous()), fields("shape"), "output"),
    ),
    ("shape_dropped", Corruption(row_sums, on_output(lambda y: y[:, 0].clone()), fields("shape"), "output")),
    ("stride", Corruption(doubled, on_output(lambda y: y.t().contiguous().t()), fields("stride"), "output")),
    ("dtype", Corruption(doubled, on_output(lambda y: y.double()), fields("dtype"), "output")),
    ("dtype_of_indices", Corruption(integers, on_output(lambda y: y.int()), fields("dtype"), "output")),
    ("offset", Corruption(doubled, on_output(lambda y: torch.cat([y[:1], y])[1:]), fields("offset"), "output")),
    ("lost_alias", Corruption(a_view, on_output(lambda y: y.clone()), fields("alias", "view", "offset"), "")),
    (
        "extra_alias",
        Corruption(two_equal_outputs, on_output(lambda ys: (ys[0], ys[0].detach())), fields("alias"), "output"),
    ),
    ("value_of_one_element", Corruption(million, on_output(one_off), fields("values"), "output")),
    ("sign_of_zero", Corruption(zeros, on_output(lambda y: -y), fields("values"), "output")),
    ("index", Corruption(integers, on_output(lambda y: y.roll(1)), fields("values"), "output")),
    ("infinity", Corruption(infinite, on_output(lambda y: y.clamp(min=-1e38)), fields("values"), "output")),
    ("missing_write_back", Corruption(in_place, no_write_back, fields("mutation", "version", "values"), "")),
    ("version", Corruption(in_place, write_without_version, fields("version"), "input[0]")),
    ("extra_version", Corruption(doubled, extra_write, fields("version"), "input[0]")),
    ("buffers", Corruption(normalized, stale_buffers, fields("mutation"), "running_mean", "train")),
    ("gradient_halved", Corruption(two_inputs, wrong_gradient(0.5), fields("gradient"), "input[0].grad", "train")),
    ("gradients_swapped", Corruption(two_inputs, swapped_gradients, fields("gradient"), ".grad", "train")),
    ("none_turned_to_zero", Corruption(unused_input, gradient_of_unused, fields("gradient"), "input[1].grad", "train")),
    (
        "requires_grad",
        Corruption(
            unused_input,
            on_output(lambda y: y.detach()),
            fields("requires_grad", "is_leaf", "has_grad_fn", "gradient"),
            "",
            "train",
        ),
    ),
    ("error_class", Corruption(raising, other_error, fields("error"), "call")),
    ("error_lost", Corruption(raising, no_error, fields("error"), "call")),
    ("structure_of_container", Corruption(two_outputs, on_output(list), fields("structure"), "output")),
    (
        "structure_of_none",
        Corruption(dictionary, on_output(lambda d: {**d, "b": d["a"] * 0}), fields("structure"), "output.b"),
    ),
    ("scalar", Corruption(dictionary, on_output(lambda d: {**d, "n": 4}), fields("values"), "output.n")),
    ("random_state_advanced", Corruption(doubled, draws_once_more, fields("random"), "torch.cpu")),
    ("random_seed_reused", Corruption(noisy, reused_seed, fields("random", "values"), "")),
    ("second_call_only", Corruption(doubled, wrong_on_second_call, fields("values"), "output", steps=(2, 3))),
    ("memory_shared_in_secret", Corruption(two_equal_outputs, on_output(secretly_shared), fields("alias"), "output")),
    (
        "output_buffer_reused",
        Corruption(counting, reused_output_buffer, fields("earlier"), "output", steps=(2, 3)),
    ),
    ("warning", Corruption(warned, warns, fields("warnings"), "UserWarning")),
)
def test_compare_finds_corruption(corruption: Corruption) -> None:
    backend, mode = Backend("corrupting", corruption.wrap), corruption.mode
    result = run_case(_case(corruption), mode, backend, RunRequest(timed=False, protocol=FEW[mode]))
    told = "\n".join(f"{found.field} {found.path}: {found.detail}" for found in result.differences)
    assert result.verdict == "diverged", f"{result.verdict}: {result.detail}"
    assert {found.field for found in result.differences} - FOLLOWS <= corruption.found, told
    assert corruption.found <= {found.field for found in result.differences}, told
    assert all(corruption.at in found.path for found in result.differences if found.field in corruption.found), told
    assert {int(found.path.split(":")[0].removeprefix("step ")) for found in result.differences} == set(
        corruption.steps
    ), told


HONEST = {
    "infer": (doubled, row_sums, a_view, in_place, zeros, dictionary, two_outputs, raising, noisy, integers, infinite),
    "train": (normalized, two_inputs, unused_input),
}


@table(
    *(
        (made.__name__, Corruption(made, lambda function: function, fields(), "", mode))
        for mode, programs in HONEST.items()
        for made in programs
    )
)
def test_compare_passes_the_honest(corruption: Corruption) -> None:
    result = run_case(_case(corruption), corruption.mode, Backend("honest", corruption.wrap), RunRequest(timed=False))
    assert (result.verdict, result.differences) == ("same", ())


def _case(corruption: Corruption) -> Case:
    return declare(name="program")(corruption.made)


def far_out() -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    return (lambda x: 1 - x.tanh() ** 2), (torch.linspace(0.5, 9, 40, dtype=torch.float64),), {}


def with_another_tanh(x: Tensor) -> Tensor:
    """The same as `far_out`, each tanh a unit in the last place further."""
    return 1 - torch.nextafter(x.tanh(), torch.zeros_like(x)) ** 2


def test_compare_knows_what_float64_loses_between_operators() -> None:
    """No neighbour of the inputs shows how far a rounding of the tanh moves the rest."""
    case = declare(name="program")(far_out)
    honest = Backend("honest", lambda function: with_another_tanh)
    assert run_case(case, "infer", honest, RunRequest(timed=False)).verdict == "same"
    corrupting = Backend("corrupting", lambda function: lambda x: with_another_tanh(x) * (1 + 1e-5))
    assert run_case(case, "infer", corrupting, RunRequest(timed=False)).verdict == "diverged"


def test_compare_finds_the_last_digits_of_float64() -> None:
    case = declare(name="program")(lambda: (torch.mul, (numbers(8, 8).double(), numbers(8, 8).double()), {}))
    corrupting = Backend("corrupting", on_output(lambda out: out * (1 + 1e-14)))
    assert run_case(case, "infer", corrupting, RunRequest(timed=False)).verdict == "diverged"


def far_powers() -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    return (lambda x: (x**5).sum() / (x**4).sum()), (torch.tensor([16.0, 15.0], dtype=torch.float16),), {}


def test_compare_takes_the_number_where_halves_overflow_on_the_way() -> None:
    """Eager's powers are infinite and their ratio is not a number; what float32 holds between is 15.5."""
    case = declare(name="program")(far_powers)
    kept = on_output(lambda out: torch.full_like(out, 15.564))
    once = steps("infer", 1)
    assert run_case(case, "infer", Backend("honest", kept), RunRequest(timed=False, protocol=once)).verdict == "same"
    wrong = on_output(lambda out: torch.full_like(out, 16.0))
    assert run_case(case, "infer", Backend("corrupting", wrong), RunRequest(timed=False)).verdict == "diverged"
