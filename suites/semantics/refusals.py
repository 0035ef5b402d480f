"""Programs that eager refuses for their dtypes, their arguments, their values or their lack of elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.case import Made
from assay.suites.semantics.program import integers, leaf, numbers, program

refusal = "refusal"
on_device = "asserted-on-the-device"
"""A GPU finds these values wrong on the device, after which the process runs nothing there any more."""


@program(refusal, modes=("infer",))
def maximum_of_nothing() -> Made:
    """Behind pointwise work."""
    return lambda x: (x + 1).max(), (torch.zeros(0),), {}


@program(refusal, modes=("infer",))
def minimum_of_no_rows() -> Made:
    return lambda x: x.min(0, keepdim=True), (torch.zeros(0, 3, dtype=torch.int64),), {}


@program(refusal, modes=("infer",))
def maximum_of_what_a_slice_leaves() -> Made:
    """The slice has no elements, of a size that is a symbol where shapes are dynamic."""
    return lambda x: (x[3:] * 2).max(), (numbers(3),), {}


@program(refusal, modes=("infer",))
def integers_in_between() -> Made:
    return lambda x, y: torch.lerp(x, y, 0.5), (integers(3), integers(3)), {}


@program(refusal, modes=("infer",))
def refused_result_that_nothing_uses() -> Made:
    def f(x: Tensor) -> Tensor:
        x.lerp(x, 0.5)
        return x + 1

    return f, (integers(3),), {}


@program(refusal, modes=("infer",))
def written_before_the_refusal() -> Made:
    def f(x: Tensor) -> Tensor:
        x.add_(1)
        return x.floor_divide(2).lerp(x, 0.5)

    return f, (integers(3),), {}


@program(refusal, modes=("infer",))
def floor_into_booleans() -> Made:
    return lambda x, out: torch.floor(x, out=out), (numbers(3), torch.zeros(3, dtype=torch.bool)), {}


@program(refusal, modes=("infer",))
def classes_of_floats() -> Made:
    return lambda x: F.one_hot(x, 3), (torch.ones(3),), {}


@program(refusal)
def smooth_loss_of_a_negative_beta() -> Made:
    return lambda x, y: F.smooth_l1_loss(x, y, beta=-1.0), (numbers(3), numbers(3)), {}


@program(refusal)
def huber_loss_of_a_negative_delta() -> Made:
    return lambda x, y: F.huber_loss(x, y, delta=-1.0), (numbers(3), numbers(3)), {}


@program(refusal, on_device)
def entropy_of_a_target_above_one() -> Made:
    return F.binary_cross_entropy, (torch.full((3,), 0.5), torch.tensor([0.0, 2.0, 1.0])), {}


@program(refusal, on_device)
def label_of_a_pixel_out_of_range() -> Made:
    return F.cross_entropy, (numbers(2, 3, 4), torch.full((2, 4), 3)), {}


@program(refusal, modes=("infer",))
def bytes_resized() -> Made:
    image = torch.ones(1, 1, 4, 4, dtype=torch.int32)
    return lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (image,), {}


@program(refusal, on_device, modes=("infer",))
def unread_scatter_out_of_range() -> Made:
    def f(x: Tensor, at: Tensor) -> Tensor:
        x.scatter(0, at, 1.0)
        return x + 1

    return f, (numbers(3), torch.tensor([7])), {}


@program(refusal, on_device)
def unread_lookup_out_of_range_beside_a_gradient() -> Made:
    def f(x: Tensor, at: Tensor) -> Tensor:
        F.embedding(at, x * 2)
        return x.exp()

    return f, (leaf(3, 2), torch.tensor([7])), {}


@program(refusal, modes=("infer",))
def unread_division_of_integers_by_zero() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x // y
        return x + 1

    return f, (integers(3), torch.zeros(3, dtype=torch.int64)), {}


@program(refusal, on_device, modes=("infer",))
def rows_out_of_range_of_which_none_is_kept() -> Made:
    """Eager looks them up before it keeps none of them."""

    def f(x: Tensor, at: Tensor) -> Tensor:
        return x[at][:0] * 2

    return f, (numbers(3), torch.tensor([7])), {}


@program(refusal, on_device)
def columns_out_of_range_of_a_tensor_that_overlaps_itself() -> Made:
    """Eager looks columns up by code of their own, whose error is of another class than that of rows."""

    def f(x: Tensor, at: Tensor) -> Tensor:
        return x.index_select(1, at) * 2

    return f, (numbers(7).as_strided((3, 3), (1, 1)), torch.tensor([0, 3])), {}


def _said_of(numbers: tuple[float, ...], model: Callable[..., object], x: Tensor) -> list[str]:
    """What the model gives for each number, in a call of its own, or how it refuses it."""
    said = list[str]()
    for number in numbers:
        try:
            said.append(str(type(model(x, number))))
        except RuntimeError as error:
            said.append(str(error))
    return said


_with_each_number = partial(_said_of, (2.0, 1.5, 1e300))
_with_each_integer = partial(_said_of, (2, 3, 0))


@program(refusal, modes=("infer",), scenario=_with_each_number)
def numbers_that_no_element_is_made_of() -> Made:
    """Each operator takes a tensor without elements, and is given a number that the dtype does not hold."""

    def f(x: Tensor, number: float) -> tuple[Tensor, ...]:
        return torch.maximum(x, torch.full_like(x, abs(number))), torch.scalar_tensor(1 - number) * x

    return f, (torch.zeros(0, 1),), {}


@program(refusal, modes=("infer",), scenario=_with_each_number)
def weight_that_no_element_is_made_of() -> Made:
    return lambda x, number: torch.lerp(x, x, number), (torch.zeros(0, 1),), {}


@program(refusal, modes=("infer",), scenario=_with_each_integer)
def slope_of_zero_of_no_elements() -> Made:
    return lambda x, alpha: F.celu(x, alpha), (torch.zeros(0, 1),), {}


def _of_doubles(channels: int) -> Tensor:
    return torch.ones(channels, dtype=torch.float64)


@program(refusal)
def layer_norm_by_weights_of_doubles() -> Made:
    return lambda x, w: F.layer_norm(x, (4,), w), (leaf(2, 4), _of_doubles(4)), {}


@program(refusal)
def layer_norm_by_a_bias_of_another_dtype_than_its_weights() -> Made:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), w, b)

    return f, (leaf(2, 4).bfloat16(), torch.ones(4), _of_doubles(4)), {}


@program(refusal)
def group_norm_by_weights_of_doubles() -> Made:
    return lambda x, w: F.group_norm(x, 2, w), (leaf(2, 4, 3), _of_doubles(4)), {}


@program(refusal)
def instance_norm_by_weights_of_doubles() -> Made:
    return lambda x, w: F.instance_norm(x, weight=w), (leaf(2, 4, 3), _of_doubles(4)), {}


@program(refusal)
def batch_norm_by_weights_of_doubles() -> Made:
    return lambda x, w: F.batch_norm(x, None, None, w, training=True), (leaf(2, 4, 3), _of_doubles(4)), {}


@program(refusal)
def batch_norm_by_statistics_of_doubles() -> Made:
    return lambda x, mean, var: F.batch_norm(x, mean, var), (leaf(2, 4), _of_doubles(4), _of_doubles(4)), {}


@program(refusal, on_device)
def written_before_and_behind_an_index_out_of_range() -> Made:
    """The inputs hold what was written before the index, and nothing of what would be written behind it."""

    def f(x: Tensor, y: Tensor, w: Tensor, at: Tensor) -> Tensor:
        x.add_(1)
        y.mul_(x)
        found = w[at] + y
        x.mul_(2)
        return found

    return f, (numbers(3), numbers(3), leaf(3), torch.tensor([7])), {}


@program(refusal, on_device)
def statistics_updated_before_a_label_out_of_range() -> Made:
    def f(x: Tensor, mean: Tensor, var: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(F.batch_norm(x, mean, var, training=True), labels)

    return f, (leaf(4, 3), torch.zeros(3), torch.ones(3), torch.tensor([0, 1, 7, 2])), {}


@program(refusal, on_device, modes=("infer",))
def part_written_before_an_index_out_of_range() -> Made:
    def f(x: Tensor, w: Tensor, at: Tensor) -> Tensor:
        x.index_copy_(0, at - at, w[:1] + 3)
        return w[at]

    return f, (numbers(3), numbers(3), torch.tensor([7])), {}


@program(refusal, on_device)
def dropped_before_a_label_out_of_range() -> Made:
    """Eager has counted the batch and drawn the mask."""

    def f(x: Tensor, mean: Tensor, var: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(F.dropout(F.batch_norm(x, mean, var, training=True)), labels)

    return f, (leaf(4, 3), torch.zeros(3), torch.ones(3), torch.tensor([0, 1, 7, 2])), {}


@program(refusal, on_device, modes=("infer",))
def drawn_before_an_index_out_of_range() -> Made:
    def f(x: Tensor, at: Tensor) -> Tensor:
        x.add_(torch.rand_like(x))
        return x[at]

    return f, (numbers(3), torch.tensor([7])), {}


@program(refusal, modes=("train",))
def backward_refused_beside_a_view_whose_history_is_refused() -> Made:
    """The call gives all results; the product's backward then needs what was written. Eager tells nothing of a view
    that was made without gradients, once its base is written."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x * 1
        with torch.no_grad():
            seen = z.view_as(z)
        product = z.prod(0)
        z.copy_(product)
        return seen, z, y * 2, product

    return f, (leaf(4), leaf(3)), {}


@program(refusal, on_device)
def loss_out_of_range_that_is_written_over() -> Made:
    """Its backward reads how many labels there are, and nobody the loss."""
    return lambda x, labels: F.cross_entropy(x, labels).zero_() + x.sum(), (leaf(2, 3), torch.tensor([0, 7])), {}


@program(refusal, on_device)
def lookup_out_of_range_that_is_written_over() -> Made:
    return lambda x, at: (x[at] * 2).fill_(3), (leaf(3, 3), torch.tensor([0, 7])), {}


@program(refusal, on_device)
def all_of_a_lookup_out_of_range_is_written_over() -> Made:
    def f(x: Tensor, at: Tensor) -> Tensor:
        found = x.gather(0, at)
        found[:] = x[:1, :2]
        return found

    return f, (leaf(3, 3), torch.tensor([[0, 7]])), {}
