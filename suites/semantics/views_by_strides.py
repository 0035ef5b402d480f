"""Views by `as_strided` that have other elements of a memory than the value has that they are taken of."""

from __future__ import annotations

from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, program

TRAIN = ("train",)
by_strides = "views-by-strides"


@program(by_strides)
def view_by_strides_of_a_part_of_a_value() -> Made:
    """It has elements that the part has not, and all of them are the value's."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        windows = y.as_strided((2, 3, 4), (4, 2, 1), 1)
        return windows.as_strided((2, 2, 2), (6, 3, 1)) * 2, y[2:].as_strided((3,), (2,), 1).sin(), windows[0]

    return f, (inner(18), leaf(18)), {}


@program(by_strides)
def view_by_strides_of_a_part_of_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x[1:].as_strided((2, 2), (3, 1), 0) * w, x.view(3, 4).t().as_strided((3,), (1,)), x[3:]

    return f, (inner(12), leaf(2, 2)), {}


@program(by_strides, modes=TRAIN)
def views_by_strides_of_parts_are_returned() -> Made:
    """A gradient of such a view reaches the elements that the part has, and no others of the memory."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        part, other = y[3:4], x.sin()
        return part.as_strided((2,), (4,), 1), y[2:].as_strided((4,), (3,), 1), other[1:4].as_strided((2,), (4,), 1)

    return f, (leaf(18), leaf(18)), {}


@program(by_strides)
def view_by_strides_of_a_part_is_returned_and_read() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        part = (x * 2).view(3, 4)[1:].as_strided((3, 2), (4, 2), 1)
        return part[1:], part.sin(), part.t()

    return f, (leaf(12),), {}


@program(by_strides)
def view_by_strides_of_a_view_written() -> Made:
    """Torch functionalizes no write through `as_strided` of another view."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = (w @ w).relu()
        part = x.t().as_strided((2,), (1,), 3)
        part.mul_(3)
        return y.sin() + x, part * 2

    return f, (inner(3, 3), leaf(3, 3)), {}


@program(by_strides)
def view_by_strides_of_a_part_of_a_value_written() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        part = y.view(3, 6)[1:].as_strided((3,), (2,), 8)
        part.mul_(3)
        return y.sin(), part * 2

    return f, (inner(18), leaf(18)), {}


@program(by_strides)
def view_by_strides_that_leaves_a_part_of_a_value_written() -> Made:
    """Autograd makes it again of the value after the write, with the gradients of all of its elements."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        part = y.view(3, 6)[1:].as_strided((3,), (2,), 1)
        part.mul_(3)
        return y.sin(), part * 2

    return f, (inner(18), leaf(18)), {}
