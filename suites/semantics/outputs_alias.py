"""Programs whose results share memory with inputs, intermediates or each other, made by every kind of view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.case import Case, Made
from assay.suites.semantics.program import inner, integers, leaf, numbers, program

alias = "output-alias"

VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(6, 2),
    "view_with_a_size_to_infer": lambda x: x.view(-1, 2),
    "view_as_itself": lambda x: x.view_as(x),
    "reshape": lambda x: x.reshape(2, 6),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "movedim": lambda x: x.movedim(0, 1),
    "matrix_transpose": lambda x: x.mT,
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "squeeze_of_nothing": lambda x: x.squeeze(),
    "expand": lambda x: x.unsqueeze(0).expand(2, 3, 4),
    "broadcast_to": lambda x: x.broadcast_to(2, 3, 4),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(0, 1),
    "slice": lambda x: x[1:],
    "slice_of_everything": lambda x: x[:],
    "whole_slice_beside_a_part": lambda x: x[:, 1:],
    "whole_slices_alone": lambda x: x[:, :],
    "item_behind_a_whole_slice": lambda x: x[:, 0],
    "new_dimension_before_a_whole_slice": lambda x: x[None, :, 1:],
    "slice_up_to_the_size": lambda x: x[1:, : x.shape[1]],
    "slice_with_steps": lambda x: x[::2, 1::2],
    "index_by_none_and_ellipsis": lambda x: x[None, ..., 0],
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "alias": lambda x: torch.ops.aten.alias(x),
    "detach": lambda x: x.detach(),
    "chain_of_views": lambda x: x.t()[1:].unsqueeze(0).transpose(1, 2)[0, 1],
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(2),
    "split_by_sizes": lambda x: x.split([1, 2]),
    "chunk": lambda x: x.chunk(2, 1),
    "tensor_split": lambda x: x.tensor_split(2, 1),
    "item_of_unbind": lambda x: x.unbind(1)[2],
    "view_of_an_item_of_split": lambda x: x.split(2)[0].t(),
    "view_as_another_dtype": lambda x: x.detach().view(torch.int32),
    "view_as_a_wider_dtype": lambda x: x.detach().view(torch.float64),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)),
    "conj_of_view_as_complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)).conj(),
    "imaginary_part_of_conj": lambda x: torch.view_as_complex(x.view(3, 2, 2)).conj().imag,
}
"""Views of a tensor of shape (3, 4)."""


def _of_input(name: str, view: Callable[[Tensor], Any]) -> Case:
    def made() -> Made:
        def f(x: Tensor, y: Tensor, w: Tensor) -> tuple[Any, ...]:
            return view(x), view(y), view(w)

        return f, (numbers(3, 4), inner(3, 4), leaf(3, 4)), {}

    made.__name__ = f"view_of_an_input_by_{name}"
    return program(alias)(made)


def _of_intermediate(name: str, view: Callable[[Tensor], Any]) -> Case:
    def made() -> Made:
        def f(x: Tensor, w: Tensor) -> tuple[Any, ...]:
            return view(x * 2), view(w * 2)

        return f, (numbers(3, 4), leaf(3, 4)), {}

    made.__name__ = f"view_of_an_intermediate_by_{name}"
    return program(alias)(made)


CASES = [_of_input(*item) for item in VIEWS.items()] + [_of_intermediate(*item) for item in VIEWS.items()]


@program(alias)
def output_is_an_input() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x, y, w, w * 2

    return f, (numbers(3), inner(3), leaf(3)), {}


@program(alias)
def output_is_an_input_twice() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        return x, {"again": x}, w, [w]

    return f, (integers(3), leaf(3)), {}


@program(alias)
def output_is_an_input_through_operators_that_return_it() -> Made:
    """`contiguous`, `to`, `float` and dropout outside of training return their argument itself."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x.contiguous(), x.float(), x.to(torch.float32), w.to(w.device), functional.dropout(w, training=False)

    return f, (numbers(3), leaf(3)), {}


@program(alias)
def output_is_an_input_through_a_dropout_of_nothing() -> Made:
    return lambda x, w: (functional.dropout(x, 0.0), w * 2), (numbers(3), leaf(3)), {}


@program(alias)
def write_through_a_dropout_that_is_off() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        functional.dropout(x, 0.5, training=False).add_(1)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(alias)
def output_is_an_input_through_an_identity_module() -> Made:
    return nn.Sequential(nn.Identity(), nn.Dropout(0.0).eval(), nn.Identity()), (inner(3),), {}


@program(alias)
def outputs_that_are_no_aliases() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x.clone(), x.t().contiguous(), w + 0, w.reshape(-1).clone(), x.t().reshape(-1)

    return f, (numbers(3, 4), leaf(3, 4)), {}


@program(alias)
def outputs_by_unsafe_views() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        y = x * w
        return torch.unsafe_split(y, 2), torch.ops.aten._unsafe_view(w * 2, [12])

    return f, (numbers(4, 3), leaf(4, 3)), {}


@program(alias)
def output_is_a_view_of_a_leaf() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.view(2, 6).transpose(0, 1)

    return f, (leaf(3, 4),), {}


class Tied(nn.Module):
    """Returns views of its parameter and its buffer."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.register_buffer("mask", torch.ones(3, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x @ self.weight, self.weight.t(), self.mask[0], self.weight


@program(alias)
def outputs_are_a_parameter_and_views_of_parameters_and_buffers() -> Made:
    return Tied(), (numbers(2, 3),), {}


@program(alias)
def two_outputs_view_one_intermediate() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y.view(-1), y.t()

    return f, (leaf(3, 4),), {}


@program(alias)
def two_outputs_view_one_intermediate_without_gradient() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y.view(-1), y.t()

    return f, (numbers(3, 4),), {}


@program(alias)
def output_is_a_view_of_another_output() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = w.exp()
        return y[0], y, y.unsqueeze(0)

    return f, (leaf(3, 4),), {}


@program(alias)
def output_is_a_view_of_an_output_that_is_a_view() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = w.exp().view(-1)
        z = y[2:]
        return z, z[1:], y

    return f, (leaf(3, 4),), {}


@program(alias)
def view_of_a_base_that_two_outputs_return() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = w.sin()
        return y, y[1:], y

    return f, (leaf(3),), {}


@program(alias)
def one_intermediate_returned_twice() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.sin()
        return y, y

    return f, (leaf(3),), {}


@program(alias)
def one_view_returned_twice() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.sin()[1:]
        return y, y

    return f, (leaf(3),), {}


@program(alias)
def equal_views_stay_two_tensors() -> Made:
    def f(w: Tensor) -> tuple[Tensor, ...]:
        y = w.sin()
        return y[1:], y[1:], w[1:], w[1:]

    return f, (leaf(3),), {}


@program(alias)
def equal_outputs_stay_two_tensors() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        return w * 2, w * 2

    return f, (leaf(3),), {}


@program(alias)
def detached_views() -> Made:
    def f(w: Tensor) -> tuple[Tensor, ...]:
        y = w * 3
        return y, y.detach(), w.detach(), y[1:].detach(), y.detach()[1:], y.data

    return f, (leaf(3),), {}


@program(alias)
def views_made_in_no_grad() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = y * 2
        with torch.no_grad():
            return x[1:], z.t(), z[1:]

    return f, (numbers(3, 4), inner(3, 4)), {}


@program(alias)
def view_of_a_view_made_in_no_grad() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w * 2
        with torch.no_grad():
            z = y[1:]
        return z.t() * 2

    return f, (leaf(3, 4),), {}


@program(alias)
def alias_of_an_expanded_input() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, x[1], x.t()

    return f, (numbers(1, 4).expand(3, 4),), {}


@program(alias)
def views_of_a_complex_input() -> Made:
    def f(z: Tensor) -> tuple[Tensor, ...]:
        return torch.view_as_real(z), z.real, z.imag, z.conj(), z.conj().imag, z.mH

    return f, (torch.randn(3, 4, dtype=torch.complex64),), {}


@program(alias)
def conj_and_neg_views_of_an_intermediate() -> Made:
    def f(z: Tensor) -> tuple[Tensor, ...]:
        y = z * 2
        return y, y.conj(), y.conj().imag, torch._neg_view(y.real)

    return f, (torch.randn(3, dtype=torch.complex64),), {}


@program(alias)
def views_of_an_integer_input_with_another_dtype() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.view(torch.float64), x.view(torch.int32), x.view(torch.uint8)[1:]

    return f, (integers(4),), {}


@program(alias)
def sparse_nesting_of_aliases() -> Made:
    def f(x: Tensor, w: Tensor) -> dict[str, Any]:
        y = w * x
        return {"y": y, "rows": list(y.unbind()), "more": {"x": (x, x[0]), "none": None}}

    return f, (numbers(3, 4), leaf(3, 4)), {}


class ViewedByFunction(torch.autograd.Function):
    """A view that a user's function made."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].view(-1, 4) * 2


@program(alias)
def view_of_an_input_by_a_custom_function() -> Made:
    def f(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return ViewedByFunction.apply(w), ViewedByFunction.apply(x)

    return f, (leaf(3, 4), numbers(3, 4)), {}


@program(alias)
def view_of_an_intermediate_by_a_custom_function() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y, ViewedByFunction.apply(y)

    return f, (leaf(3, 4),), {}


class Identity(torch.autograd.Function):
    """Returns its argument itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3


@program(alias)
def argument_returned_by_a_custom_function() -> Made:
    def f(w: Tensor) -> Tensor:
        return Identity.apply(w)

    return f, (leaf(3),), {}


mutated = "alias-of-mutated"


@program(alias, mutated)
def view_taken_before_the_mutation_of_its_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        early = x.view(-1)
        x.mul_(2)
        return early, x[0] * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(alias, mutated)
def view_taken_after_the_mutation_of_its_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        return x.view(-1), x[0] * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(alias, mutated)
def views_taken_around_the_mutation_of_an_inner_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        early = x.t()
        x.mul_(w)
        return early, x[0], x

    return f, (inner(3, 4), leaf(4)), {}


@program(alias, mutated)
def view_of_an_inner_input_mutated_and_returned() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x[1:]
        y.mul_(2)
        return y, x

    return f, (inner(3, 4),), {}


@program(alias, mutated)
def view_of_an_intermediate_taken_before_its_mutation() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        early = y.view(-1)
        y.add_(1)
        return early, y

    return f, (leaf(3, 4),), {}


@program(alias, mutated)
def view_of_an_intermediate_mutated() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        early = y[1:]
        early.mul_(w[0])
        return early, y

    return f, (leaf(3, 4),), {}


@program(alias, mutated)
def view_of_an_input_with_another_dtype_mutated() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.view(torch.int32)
        y.add_(1)
        return y, x

    return f, (numbers(4),), {}


@program(alias, mutated)
def conj_view_of_a_mutated_input() -> Made:
    def f(z: Tensor) -> tuple[Tensor, Tensor]:
        z.mul_(2)
        return z.conj(), z.imag

    return f, (torch.randn(3, dtype=torch.complex64),), {}


afterwards = "written-by-the-caller"


def _write_first(f: Callable[..., Any], *args: Tensor) -> Any:
    """Writes through the first result and looks at all of them."""
    first, *others = f(*args)
    first.mul_(3)
    return first, *others, [tensor for tensor in args if not tensor.is_leaf]


def _write_last(f: Callable[..., Any], *args: Tensor) -> Any:
    *others, last = f(*args)
    last.mul_(3)
    return *others, last, [tensor for tensor in args if not tensor.is_leaf]


@program(afterwards, scenario=_write_first)
def caller_writes_an_output_that_is_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x, x + w

    return f, (numbers(3), leaf(3)), {}


@program(afterwards, "raises", scenario=_write_first)
def caller_writes_an_inner_input_that_was_saved_and_returned() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * w

    return f, (inner(3), leaf(3)), {}


@program(afterwards, scenario=_write_first)
def caller_writes_a_view_of_an_inner_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x[1:], x + w

    return f, (inner(3), leaf(3)), {}


@program(afterwards, "raises", scenario=_write_first)
def caller_writes_a_view_of_a_leaf() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        return w[1:], w * 2

    return f, (leaf(3),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_a_view_whose_base_is_returned() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y[1:], y

    return f, (leaf(3),), {}


@program(afterwards, scenario=_write_last)
def caller_writes_a_base_whose_view_is_returned() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y[1:], y

    return f, (leaf(3),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_one_of_two_views_of_a_hidden_base() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y[1:], y[:2]

    return f, (leaf(3),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_one_of_two_views_without_gradient() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y[1:], y[:2]

    return f, (numbers(3),), {}


@program(afterwards, scenario=_write_last)
def caller_writes_a_no_op_view_of_a_hidden_base() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y.view_as(y), y[:]

    return f, (leaf(3),), {}


@program(afterwards, "raises", scenario=_write_first)
def caller_writes_an_item_of_unbind() -> Made:
    """Eager refuses: the views of `unbind` cannot be written."""

    def f(w: Tensor) -> tuple[Tensor, ...]:
        return (w * 2).unbind()

    return f, (leaf(3, 4),), {}


@program(afterwards, "raises", scenario=_write_first)
def caller_writes_an_item_of_split_of_an_inner_input() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.split(2)

    return f, (inner(3, 4),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_an_item_of_unsafe_split() -> Made:
    def f(w: Tensor) -> tuple[Tensor, ...]:
        return torch.unsafe_split(w * 2, 2)

    return f, (leaf(4, 3),), {}


def _write_first_and_ask_the_version(f: Callable[..., Any], x: Tensor) -> int:
    first, _ = f(x)
    first.mul_(3)
    return x._version


@program(afterwards, scenario=_write_first_and_ask_the_version)
def caller_writes_the_data_of_an_input() -> Made:
    """The input is written too, and its version stays as it is."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.data, x * 2

    return f, (numbers(3),), {}


def _write_the_table_and_call_again(f: Callable[..., Any], x: Tensor) -> tuple[Tensor, Tensor]:
    table, _ = f(x)
    table.mul_(3)
    return table, f(x)[0]


@program(afterwards, scenario=_write_the_table_and_call_again)
def caller_writes_a_table_that_the_program_computed() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        table = (torch.arange(64.0) * 0.1).sin().exp()
        return table, table * x

    return f, (numbers(64),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_a_detached_view() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w + 2
        return y.detach(), y

    return f, (leaf(3),), {}


@program(afterwards, scenario=_write_last)
def caller_writes_what_a_detached_view_sees() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w + 2
        return y.detach()[1:], y

    return f, (leaf(3),), {}


@program(afterwards, "raises", scenario=_write_first)
def caller_writes_an_alias_of_an_expanded_input() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:2], x

    return f, (numbers(1, 4).expand(3, 4),), {}


@program(afterwards, scenario=_write_first)
def caller_writes_an_alias_of_a_mutated_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(w)
        return x[1:], x

    return f, (inner(3), leaf(3)), {}


def _write_and_call_again(f: Callable[..., Any], *args: Tensor) -> Any:
    first = f(*args)
    with torch.no_grad():
        first.add_(100)
    return first, f(*args)


@program(afterwards, scenario=_write_and_call_again)
def caller_writes_a_constant_that_the_program_made() -> Made:
    """The next call makes it anew."""

    def f(x: Tensor) -> Tensor:
        return torch.tensor([1.0, 2.0, 3.0])

    return f, (numbers(3),), {}


@program(afterwards, scenario=_write_and_call_again)
def caller_writes_zeros_that_the_program_made() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.zeros(3)

    return f, (numbers(3),), {}


def _resize_base(f: Callable[..., Any], x: Tensor) -> Any:
    base, view = f(x)
    with torch.no_grad():
        base.detach().resize_(2, 2)
        view.detach().fill_(1)
    return base, view


@program(afterwards, scenario=_resize_base)
def caller_resizes_a_base_returned_with_its_no_op_view() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y.view(3, 4)

    return f, (numbers(3, 4),), {}


@program(alias)
def detached_input_written_with_a_gradient() -> Made:
    """The alias requires grad from the write on, and the input does not."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        alias = x.detach()
        alias.mul_(w)
        return alias[:1], x[1:]

    return f, (numbers(3), leaf(3)), {}


@program(alias)
def detached_leaf_written_with_its_gradient() -> Made:
    def f(w: Tensor) -> Tensor:
        alias = w.detach()
        alias.add_(w)
        return alias.view_as(alias)

    return f, (leaf(3),), {}


@program(alias)
def conjugate_written_and_read_as_real() -> Made:
    """What a write makes of a lazily conjugated tensor is lazily conjugated too; so with what is lazily negated."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        conjugate, negative = x.conj(), torch._neg_view(y)
        conjugate[2:].add_(1j)
        negative.add_(2)
        return conjugate.imag, conjugate.conj().real, x[1:].imag, negative.imag, y.imag, negative.conj().real

    return f, (torch.randn(4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)), {}


@program(alias)
def conjugated_input_written_and_read_as_real() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x.mul_(y)
        return x.imag, x.conj().imag, x + 1, x[1:].real

    return f, (torch.randn(4, dtype=torch.complex64).conj(), torch.randn(4, dtype=torch.complex64)), {}


@program(alias)
def strides_that_leave_an_input() -> Made:
    """The view holds elements of the storage that its tensor does not."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x.as_strided((3,), (8,), 1)
        return y, y[1:], x * 2

    return f, (inner(24)[2:8],), {}


@program(alias)
def strides_that_leave_an_input_and_are_read() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x.as_strided((3,), (8,), 1)
        z = (x * w).sin()
        return y.mT, z.sum() * y[:2], y.exp() + w[:3]

    return f, (inner(24)[2:8], leaf(6)), {}


@program(alias)
def strides_that_leave_a_written_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        z = w.sin() * 2
        y = x.as_strided((3,), (8,), 1)
        x.mul_(z)
        return y, z, x[1:]

    return f, (inner(24)[2:8], leaf(6)), {}


@program(alias)
def strides_that_leave_an_input_written_through_them() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        z = w.sin() * 2
        y = x.as_strided((3,), (8,), 1)
        y.mul_(3)
        return y, z * x.sum(), x

    return f, (inner(24)[2:8], leaf(6)), {}


@program(alias)
def strides_from_the_offset_of_an_input() -> Made:
    """Without an offset, a view by strides begins where its tensor does."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.as_strided((2,), (10,)), x.cos()

    return f, (inner(24)[2:8],), {}
