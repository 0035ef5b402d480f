"""Programs with operators of the user's own that write their arguments: what reads after them sees the new value."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.semantics.program import inner, integers, leaf, numbers, program

operator = "custom-operator"


@torch.library.custom_op("assay_semantics::increment", mutates_args=("x",))
def increment(x: Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("assay_semantics::scaled_into", mutates_args=("out",))
def scaled_into(x: Tensor, out: Tensor, factor: float) -> None:
    out.copy_(x * factor)


@torch.library.custom_op("assay_semantics::increment_and_sum", mutates_args=("x",))
def increment_and_sum(x: Tensor) -> Tensor:
    x.add_(1)
    return x.sum()


@increment_and_sum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(())


@torch.library.custom_op("assay_semantics::exchange", mutates_args=("x", "y"))
def exchange(x: Tensor, y: Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


@torch.library.custom_op("assay_semantics::increment_all", mutates_args=("tensors",))
def increment_all(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.add_(1)


@torch.library.custom_op("assay_semantics::maybe_increment", mutates_args=("x",))
def maybe_increment(x: Tensor | None, y: Tensor) -> Tensor:
    if x is not None:
        x.add_(1)
    return y * 2


@maybe_increment.register_fake
def _(x: Tensor | None, y: Tensor) -> Tensor:
    return torch.empty_like(y)


@torch.library.custom_op("assay_semantics::cubed", mutates_args=())
def cubed(x: Tensor) -> Tensor:
    return x**3


@cubed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _save_input(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _gradient_of_cubed(ctx: Any, gradient: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return gradient * 3 * x * x


cubed.register_autograd(_gradient_of_cubed, setup_context=_save_input)

LIBRARY = torch.library.Library("assay_semantics_alias", "DEF")
LIBRARY.define("window(Tensor(a) x) -> Tensor(a)")
LIBRARY.define("double_(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.impl("window", lambda x: x[1:], "CompositeImplicitAutograd")
LIBRARY.impl("double_", lambda x: x.mul_(2), "CompositeExplicitAutograd")
LIBRARY.define("doubled_into(Tensor x, *, Tensor(a!) into) -> ()")
LIBRARY.define("named_out(Tensor x, *, Tensor(a!) out) -> ()")


def _doubled(x: Tensor, *, into: Tensor) -> None:
    into.copy_(x * 2)


def _named_out(x: Tensor, *, out: Tensor) -> None:
    out.copy_(x * 2)


LIBRARY.impl("doubled_into", _doubled, "CompositeExplicitAutograd")
LIBRARY.impl("named_out", _named_out, "CompositeExplicitAutograd")


@program(operator)
def operator_mutates_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        increment(x)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_an_integer_input_and_nothing_is_returned() -> Made:
    def f(x: Tensor) -> None:
        increment(x)

    return f, (integers(3),), {}


@program(operator)
def operator_mutates_a_view_of_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        increment(x[1:])
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_an_intermediate() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * 2
        increment(y)
        return y * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_an_intermediate_under_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        early = y[1:]
        increment(y)
        return early, y * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_one_tensor_twice() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        increment(x)
        first = x * 2
        increment(x)
        return (first + x) * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_writes_into_an_output_argument() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        out = torch.empty_like(x)
        scaled_into(x, out, 2.0)
        return out * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_of_a_library_writes_an_input() -> Made:
    def f(x: Tensor, into: Tensor, w: Tensor) -> Tensor:
        torch.ops.assay_semantics_alias.doubled_into(x, into=into)
        return into * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(operator)
def operator_of_a_library_writes_what_it_names_out() -> Made:
    def f(x: Tensor, out: Tensor, w: Tensor) -> Tensor:
        torch.ops.assay_semantics_alias.named_out(x, out=out)
        return out * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_and_returns_another_tensor() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = increment_and_sum(x)
        return total, x * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_two_inputs() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        exchange(x, y)
        return (x - 2 * y) * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(operator)
def operator_mutates_two_overlapping_inputs() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        scaled_into(x, y, 3.0)
        return (x - 2 * y) * w

    base = numbers(8)
    return f, (base[:4], base[2:6], leaf(4)), {}


@program(operator)
def operator_mutates_a_list_of_inputs() -> Made:
    def f(tensors: list[Tensor], w: Tensor) -> Tensor:
        increment_all(tensors)
        return tensors[1] * w

    return f, ([numbers(2), numbers(3)], leaf(3)), {}


@program(operator)
def operator_takes_none_for_what_it_would_mutate() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return maybe_increment(None, x) * w + maybe_increment(x, w.detach()) * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_reads_the_tensor_that_it_mutates_through_another_argument() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return maybe_increment(x, x) * w

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_with_a_registered_gradient() -> Made:
    def f(w: Tensor) -> Tensor:
        return cubed(w.sin())

    return f, (leaf(3),), {}


@program(operator)
def operator_mutates_a_leaf_in_no_grad() -> Made:
    def f(w: Tensor) -> Tensor:
        with torch.no_grad():
            increment(w)
        return w * 2

    return f, (leaf(3),), {}


@program(operator)
def operator_mutates_an_inner_input() -> Made:
    """Without a registered gradient, in eager as compiled."""

    def f(x: Tensor) -> Tensor:
        increment(x)
        return x.detach() * 2

    return f, (inner(3),), {}


@program(operator)
def operator_returns_an_alias() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.assay_semantics_alias.window(x), torch.ops.assay_semantics_alias.window(w * 2)

    return f, (numbers(3), leaf(3)), {}


@program(operator)
def operator_in_place_returns_its_argument() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = torch.ops.assay_semantics_alias.double_(x)
        return y * w

    return f, (numbers(3), leaf(3)), {}


def offset_view() -> Tensor:
    """A view that begins within its storage, with gaps between its rows."""
    return numbers(40)[3:39].view(12, 3)[:, 1:]


@program(operator)
def operator_writes_a_part_of_an_offset_input_that_was_written_in_part() -> Made:
    def f(x: Tensor) -> Tensor:
        x[1:2] = 5
        part = x[1:3]
        increment(part)
        return part * 2

    return f, (offset_view(),), {}


@program(operator)
def operator_writes_a_part_of_an_offset_input_that_was_written_whole() -> Made:
    def f(x: Tensor) -> Tensor:
        x.copy_(x * 2)
        increment(x[1:3])
        return x.sum()

    return f, (offset_view(),), {}


CASES: list[Case] = []
if importlib.util.find_spec("triton") is not None:  # torch for the CPU comes without it
    importlib.import_module("triton.language")  # whose own functions must not be interpreted where there is a GPU
    with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"}):  # read where a kernel is declared
        CASES = importlib.import_module("assay.suites.semantics._triton_operators").CASES


@program(operator)
def operator_mutates_an_input_through_data() -> Made:
    """The version of the input does not grow."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        data = x.data
        exchange(data[:2], data[2:])
        return x * w

    return f, (numbers(4, 3), leaf(3)), {}


@program(operator)
def operator_mutates_an_input_through_data_between_other_writes() -> Made:
    """The version of the input grows by the others, and by what the second call of the operator makes it grow."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        data = x.data
        x.add_(1)
        exchange(data[:2], data[2:])
        x.mul_(2)
        increment(x)
        return x * w

    return f, (numbers(4, 3), leaf(3)), {}


@program(operator)
def operator_mutates_integers_through_data() -> Made:
    def f(x: Tensor) -> None:
        exchange(x.data, x.data)

    return f, (integers(3),), {}


@program(operator)
def operator_mutates_one_memory_through_two_aliases() -> Made:
    """Autograd knows neither as a view of the other, nor both as views of one tensor."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        exchange(x.detach()[:2], x.detach()[2:])
        return x * w

    return f, (numbers(4, 3), leaf(3)), {}


@program(operator)
def operator_mutates_two_views_in_inference_mode() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.inference_mode():
            y = x * 2
            exchange(y[:2], y[2:])
            return y

    return f, (numbers(4, 3),), {}
