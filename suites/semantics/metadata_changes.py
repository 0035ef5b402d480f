"""Programs that change the shape, strides, storage or autograd flags of their inputs: the caller's tensors change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Case, Made
from assay.suites.semantics.program import inner, leaf, numbers, program

metadata = "metadata-mutation"

CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "t": lambda x: x.t_(),
    "transpose": lambda x: x.transpose_(0, 1),
    "swapdims": lambda x: x.swapdims_(0, 1),
    "unsqueeze": lambda x: x.unsqueeze_(1),
    "squeeze": lambda x: x.squeeze_(),
    "as_strided": lambda x: x.as_strided_((2, 2), (1, 2), 1),
    "resize_smaller": lambda x: x.resize_(2, 2),
    "resize_same": lambda x: x.resize_(x.shape),
}
"""Each changes a tensor of shape (3, 4) or, called again, of the shape that it made."""


def _changed(name: str, change: Callable[[Tensor], Any]) -> Case:
    def plain() -> Made:
        def f(x: Tensor, w: Tensor) -> Tensor:
            change(x)
            return x.sum() * w

        return f, (numbers(3, 4), leaf(3)), {}

    plain.__name__ = f"metadata_of_an_input_by_{name}"
    return program(metadata)(plain)


def _changed_with_gradient(name: str, change: Callable[[Tensor], Any]) -> Case:
    def with_gradient() -> Made:
        def f(x: Tensor) -> Tensor:
            change(x)
            return x * 2

        return f, (inner(3, 4),), {}

    with_gradient.__name__ = f"metadata_of_an_inner_input_by_{name}"
    tags = ("raises",) if name.startswith("resize") else ()
    return program(metadata, *tags)(with_gradient)


CASES = [_changed(*item) for item in CHANGES.items()] + [_changed_with_gradient(*item) for item in CHANGES.items()]


@program(metadata)
def metadata_of_an_input_by_resize_larger() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.resize_(5, 4).fill_(1.5)
        return x * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(metadata)
def metadata_of_an_input_changed_and_returned() -> Made:
    def f(x: Tensor) -> Tensor:
        return x.t_()

    return f, (numbers(3, 4),), {}


@program(metadata)
def data_then_metadata() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        x.t_()
        return x.sum() * w

    return f, (numbers(3, 4), leaf(4)), {}


@program(metadata)
def metadata_then_data() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.t_()
        x[0].mul_(2)
        return x.sum() * w

    return f, (numbers(3, 4), leaf(4)), {}


def _transpose_write_and_view(x: Tensor) -> Tensor:
    x.t_()
    x[0].mul_(2)
    return x.view(x.shape)


@program(metadata)
def metadata_then_data_and_a_view_returned() -> Made:
    """The view is one of the input as it lies after the call, and shares its memory."""
    return _transpose_write_and_view, (numbers(3, 4),), {}


@program(metadata)
def metadata_then_data_of_an_inner_input_and_a_view_returned() -> Made:
    return _transpose_write_and_view, (inner(3, 4),), {}


@program(metadata)
def metadata_then_data_and_parts_returned() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        x.transpose_(0, 1)
        x[1].mul_(2)
        x.swapaxes_(0, 1)
        x[:, 0].add_(1)
        return x[0], x.select(1, 1), x.t()[1:]

    return f, (inner(3, 4),), {}


@program(metadata)
def part_of_a_view_transposed_in_place_mutated() -> Made:
    """The gradient is that of the part as it lies then, not of what has its index in the view as it was taken."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * w
        part = y[1:]
        part.t_()
        part[0].mul_(2)
        return y, part

    return f, (leaf(3, 4), leaf(4)), {}


@program(metadata)
def base_of_a_view_unsqueezed_in_place_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * w
        part = y.diagonal()
        part.unsqueeze_(0)
        y[1].mul_(2)
        return part * 3, y

    return f, (leaf(3, 4), leaf(4)), {}


@program(metadata)
def data_and_metadata_of_an_inner_input() -> Made:
    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        x.unsqueeze_(0)
        return x.sin()

    return f, (inner(3, 4),), {}


@program(metadata)
def leaf_with_metadata_changed_without_gradients() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        same = x.conj()  # x itself, as it is real
        with torch.no_grad():
            same.squeeze_()
        return w * 2

    return f, (leaf(3, 1, 4), leaf(2)), {}


@program(metadata)
def metadata_changed_without_gradients_and_read_with_them() -> Made:
    """Of a view eager makes the history anew; a leaf has none."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            torch.nn.functional.dropout(x, 0.5, training=False).t_()
            torch.nn.functional.dropout(y, 0.5, training=False).unsqueeze_(0)
        return x.sin() * 2, y.exp().sum()

    return f, (leaf(3, 4), inner(3, 5)[:, 1:]), {}


@program(metadata)
def metadata_changed_without_gradients_of_no_elements() -> Made:
    """Dropout gives back what has none, so that the input is transposed."""

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            torch.nn.functional.dropout(x, 0.5).t_()
        return x.sum() * 3

    return f, (inner(3)[:0].expand(2, -1),), {}


@program(metadata)
def metadata_changed_and_a_view_of_before_returned() -> Made:
    def f(x: Tensor) -> Tensor:
        early = x[1:]
        x.t_()
        return early

    return f, (numbers(3, 4),), {}


@program(metadata)
def inner_input_detached_in_place() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.detach_()
        return x * w

    return f, (inner(3), leaf(3)), {}


@program(metadata)
def input_made_to_require_a_gradient() -> Made:
    def f(x: Tensor) -> Tensor:
        x.requires_grad_()
        return x * 2

    return f, (numbers(3),), {}


@program(metadata)
def leaf_made_to_require_no_gradient() -> Made:
    def f(w: Tensor, other: Tensor) -> Tensor:
        w.requires_grad_(False)
        return w * other

    return f, (leaf(3), leaf(3)), {}


storage = "storage-replaced"


@program(storage)
def storage_set_to_that_of_another_input() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.set_(y)  # type: ignore[call-overload]
        return x * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


@program(storage)
def storage_set_with_an_offset() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.set_(y.untyped_storage(), 1, (2, 2), (2, 1))
        return x.sum() * w

    return f, (numbers(3), numbers(6), leaf(3)), {}


@program(storage)
def storage_set_to_an_intermediate() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            x.set_(x * 2)  # type: ignore[call-overload]
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(storage)
def data_of_an_input_assigned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.data = x.data * 2
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(storage)
def data_of_a_leaf_assigned() -> Made:
    def f(w: Tensor, y: Tensor) -> Tensor:
        w.data = y * 2
        return w * 3

    return f, (leaf(3), numbers(3)), {}


@program(storage)
def data_of_an_input_assigned_another_input() -> Made:
    def f(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.data = y
        x.mul_(2)
        return x * w

    return f, (numbers(3), numbers(3), leaf(3)), {}


def _with_the_memory_before(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The result, what the input is, and what its memory of before the call holds."""
    view, alias = x.view(-1), x.detach()
    return f(x, w), x, view, alias


@program(storage, scenario=_with_the_memory_before)
def data_of_an_input_assigned_and_then_written() -> Made:
    """The memory that the input had is not written."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        x.data = torch.full_like(x, 2.0)
        x.add_(1)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(storage, scenario=_with_the_memory_before)
def data_of_an_input_assigned_between_writes() -> Made:
    """The first write alone is one of the memory that the input had."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        x.data = x.detach() * 2
        x.mul_(3)
        return x * w

    return f, (numbers(3), leaf(3)), {}


@program(storage, scenario=_with_the_memory_before)
def view_written_of_which_the_data_was_replaced() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        old = x.view(-1)
        x.data = torch.full_like(x, 2.0)
        old.add_(1)
        return x * w

    return f, (numbers(3), leaf(3)), {}


class Gathered(nn.Module):
    """A parameter whose storage is allocated, filled and freed within one call, as FSDP does."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = nn.Parameter(torch.randn(6))
        self.register_buffer("whole", torch.zeros(6), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.whole, Tensor)
        self.whole.untyped_storage().resize_(self.whole.numel() * self.whole.element_size())
        with torch.no_grad():
            self.whole.copy_(self.shard)
        y = x + self.whole.view(2, 3)
        self.whole.untyped_storage().resize_(0)
        return y


def _look_at_sizes(model: Callable[..., Tensor], x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return model(x) * w, x


@program(storage, scenario=_look_at_sizes)
def storage_resized_up_and_down() -> Made:
    return Gathered(), (numbers(2, 3), leaf(3)), {}


@program(storage)
def storage_of_an_input_freed() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y, size = x * w, x.untyped_storage().nbytes()
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(size)
        x.fill_(2)
        return y.detach() + w

    return f, (numbers(3), leaf(3)), {}


@program(metadata)
def metadata_of_a_detached_input_changed_and_its_view_returned() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.detach()
        y.unsqueeze_(0)
        return y, y[:, 2]

    return f, (numbers(4),), {}


@program(metadata)
def metadata_of_a_view_changed_without_gradients() -> Made:
    """Autograd refuses to look at every view that was taken before, and at none that is taken after."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            before, changed = x[1:], x[0]
            changed.unsqueeze_(0)
            after = x[:2]
        return before, changed, after, x * 2

    return f, (leaf(3, 4),), {}


@program(metadata)
def metadata_of_an_expanded_view_changed_without_gradients() -> Made:
    """The sizes of the view are symbols where shapes are dynamic."""

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            wide = x.expand(2, x.shape[0], x.shape[1])
            wide.transpose_(0, 2)
        return wide

    return f, (leaf(3, 4),), {}


def _ask_of_the_view(model: Callable[..., tuple[Tensor, Tensor]], x: Tensor) -> tuple[str, Tensor]:
    view, y = model(x)
    try:
        return str(view.grad_fn), y
    except RuntimeError as error:
        return str(error), y


@program(metadata, scenario=_ask_of_the_view)
def metadata_of_an_expanded_view_changed_beside_gradients() -> Made:
    """The same, where backward holds the input that is the view's base."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            wide = x.expand(2, x.shape[0], x.shape[1])
            wide.transpose_(0, 2)
        return wide, x.sin()

    return f, (leaf(3, 4),), {}


def _ask_whether_it_requires_grad(model: Callable[..., Tensor], x: Tensor) -> tuple[bool, Tensor]:
    y = model(x)
    return y.requires_grad, y.detach()


@program(metadata, scenario=_ask_whether_it_requires_grad)
def metadata_of_a_result_detached_and_written_under_its_view() -> Made:
    """The view requires grad in name: from the write on, its history leads nowhere."""

    def f(x: Tensor) -> Tensor:
        y = x + 1
        view = y.t()
        y.detach_()
        y.mul_(3)
        return view

    return f, (leaf(2, 3),), {}


@program(metadata, modes=("infer",))
def leaf_flattened_while_another_view_of_it_is_transposed() -> Made:
    def f(x: Tensor, view: Tensor) -> Tensor:
        flat = x.ravel()
        view.transpose(-2, -1).transpose_(-1, -2)
        return flat

    base = leaf(16)
    return f, (base, base[2:16].view(2, 7)), {}
