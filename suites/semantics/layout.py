"""Programs over dtypes, shapes and strides at the edges: results have eager's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.harness.case import MODES, Case, Made
from assay.suites.semantics.program import inner, leaf, program


@program("layout")
def integer_and_bool_inputs() -> Made:
    def f(i: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return i * 2 + b, i // 3, b & (i > 2), b.sum(), torch.where(b, w, i)

    return f, (torch.arange(6), torch.tensor([True, False] * 3), leaf(6)), {}


@program("layout")
def zero_dimensional_inputs() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * w, (x + w).exp().sum()

    return f, (torch.randn(()), leaf()), {}


@program("layout")
def empty_inputs() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * w
        return y, y.sum(), y.sum(0)

    return f, (torch.randn(0, 3), leaf(3)), {}


@program("layout")
def image_of_one_channel_to_many_by_single_pixels() -> Made:
    """Such an image lies in both layouts, and its convolution lies in rows."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return nn.functional.conv2d(x, w)

    return f, (torch.randn(2, 1, 4, 4), leaf(5, 1, 1, 1)), {}


@program("layout", modes=("infer",) if torch.backends.cpu.get_cpu_capability() == "AVX2" else MODES)
def single_pixels_stepped_by_rows_and_columns_apart() -> Made:
    """Every row of an image with its channels innermost is read, and every other column. Of its gradients eager's
    process dies (upstream_bugs/convolution_by_uneven_steps_writes_beyond_its_memory.py)."""

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return nn.functional.conv2d(x, w, b, stride=(1, 2))

    x = torch.randn(2, 3, 5, 6).to(memory_format=torch.channels_last)
    return f, (x, leaf(4, 3, 1, 1), leaf(4)), {}


@program("layout")
def channels_convolved_apart_with_rows_and_columns_padded_apart() -> Made:
    """The gradient of the weights reads no more rows than there are, and four more columns."""

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return nn.functional.conv2d(x, w, b, padding=(0, 2), groups=3)

    x = torch.randn(2, 3, 5, 6).to(memory_format=torch.channels_last)
    return f, (x, leaf(3, 1, 3, 3), leaf(3)), {}


@program("layout")
def dimensions_of_size_one() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.transpose(0, 1) * w, (x + w).mean(1, keepdim=True)

    return f, (torch.randn(1, 4, 1), leaf(1, 1, 3)), {}


@program("layout")
def channels_last_input() -> Made:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last)
    return model, (x,), {}


@program("layout")
def transposed_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.relu() * 2, x + w, torch.zeros_like(x)

    return f, (torch.randn(5, 4).t(), leaf(4, 5)), {}


@program("layout")
def expanded_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2, x * w, x.clone()

    return f, (torch.randn(1, 4).expand(3, 4), leaf(3, 4)), {}


@program("layout")
def strided_slices() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x[::2, 1:] * w[:, ::2], torch.cat([x[:1], x[2:]], 0)

    return f, (torch.randn(6, 4), leaf(3, 6)), {}


@program("layout", modes=("train",))
def gradient_that_lies_otherwise_than_its_activation() -> Made:
    def f(x: Tensor) -> Tensor:
        return nn.functional.relu(x.t()).flatten() * 2

    return f, (inner(12).as_strided((2, 4), (2, 2), 1),), {}


OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copysign": torch.copysign,
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logical_or": torch.logical_or,
    "xlogy": torch.xlogy,
}
"""Operators whose fake kernels take the strides of their first argument, whatever those of the second are."""


def _of_two(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> Case:
    def made() -> Made:
        def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            z = function(x, y)
            return z, z.to(torch.float64) * 2

        return f, (torch.rand(1), torch.rand(5, 4).t()), {}

    made.__name__ = f"strides_of_{name}"
    return program("layout")(made)


CASES = [_of_two(*item) for item in OF_TWO.items()]


@program("layout")
def floor_division_of_columns() -> Made:
    def f(x: Tensor, other: Tensor) -> Tensor:
        return torch.div(x.t(), other, rounding_mode="floor")

    return f, (leaf(5, 10), leaf()), {}


@program("layout")
def batch_norm_of_a_permuted_input() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x.permute(2, 1, 0), None, None, training=True)

    return f, (leaf(5, 3, 4),), {}


@program("layout")
def roll_of_an_empty_tensor() -> Made:
    def f(x: Tensor) -> Tensor:
        return x.roll(1, 0)

    return f, (torch.ones(0, 4),), {}


@program("layout")
def sign_of_zero_of_a_layer_norm() -> Made:
    def f(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, (1,), weight).reciprocal()

    return f, (torch.tensor([3.0]), torch.tensor([-2.0])), {}


@program("layout")
def product_with_a_power_of_columns() -> Made:
    def f(x: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ldexp(x, exponent.t()), torch.pow(2.0, exponent.t())

    return f, (leaf(4, 1, 5), leaf(5, 4)), {}


@program("layout")
def product_in_float64_with_a_power_of_columns() -> Made:
    def f(x: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ldexp(x.double(), exponent.t()), torch.ldexp(x.bfloat16(), exponent.t())

    return f, (leaf(4, 1, 5), leaf(5, 4)), {}


@program("layout")
def strides_without_elements() -> Made:
    """Nothing tells a view later from where the strides say; they are eager's all the same."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * 3
        return y, y.sin(), x + w, w.exp()

    return f, (torch.randn(4, 0).t(), leaf(4, 0).t()), {}


@program("layout")
def index_without_elements_of_another_rank() -> Made:
    """Eager takes it: there is nothing to look up, nor to add up in the gradient."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.zeros(2, 0, dtype=torch.int64)
        return torch.gather(w, 0, index), (x * w).scatter_add(0, index, torch.zeros(2, 0))

    return f, (torch.randn(5), leaf(5)), {}


@program("layout")
def strides_of_one_row_in_columns() -> Made:
    """With one element along a dimension nothing tells where its stride leads; it is eager's all the same."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, x.sin(), x + w, y[:, 1:]

    return f, (torch.randn(4, 1).t(), leaf(4)), {}


@program("layout")
def part_without_elements_of_an_expanded_input_written() -> Made:
    """No row, and a stride of 0 between rows: there is nothing to write, nor memory for it."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x[:, 1:].mul_(2)
        return x.sum(0), w.cos()

    return f, (torch.randn(1, 4).expand(0, -1), leaf(1, 4)), {}


@program("layout")
def as_strided_of_a_rolled_image() -> Made:
    """The part of memory that it reads says how the result of `roll` lies: by channels, as the image."""
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    return lambda x: torch.as_strided(torch.roll(x, 1, 1), (4,), (1,)), (image,), {}


@program("layout")
def along_a_dimension_of_one_element() -> Made:
    """The strides that eager gives a dimension of one element."""

    def call(x: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        f, first = torch.nn.functional, torch.zeros(1, dtype=torch.int64)
        return (
            f.layer_norm(x, (5,)),
            f.log_softmax(x, 1),
            f.batch_norm(image, None, None, training=True),
            f.group_norm(image, 1),
            x.index_add(0, first, x),
            x.index_copy(0, first, x),
            x.renorm(2, 0, 1.0),
            torch.stack([image, image], 1),
        )

    image = torch.randn(2, 1, 4, 5).to(memory_format=torch.channels_last)
    return call, (torch.randn(5, 1).t().requires_grad_(), image.requires_grad_()), {}


@program("layout")
def value_seen_by_other_strides_of_its_own_shape() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x + 1
        return y.as_strided((2, 2), (1, 2)) * w + y

    return f, (torch.randn(2, 2), leaf(2, 2)), {}


@program("layout")
def rolled_and_seen_in_other_shapes() -> Made:
    """Quotients and remainders of what is a remainder already."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        rolled = (x.t() + 1).reshape(12).roll(5, 0) * 2
        parts = (y + 1).view(48).roll(20, 0).view(12, 4) * 2
        return rolled, parts, parts.view(6, 2, 4).transpose(0, 1).reshape(8, 6) + 1

    return f, (leaf(4, 3), leaf(6, 8)), {}
