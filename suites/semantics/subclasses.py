"""Tensors of a user's own class around inner tensors: as inputs, parameters, buffers, results and gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

subclass = "subclass"


def two(*shape: int, requires_grad: bool = False) -> Tensor:
    """A pair of tensors with numbers of their own."""
    return TwoTensor(torch.randn(shape), torch.randn(shape)).requires_grad_(requires_grad)


@program(subclass)
def pair_in_and_out() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return (x.sin() * y + 1).relu()

    return f, (two(3, 4, requires_grad=True), leaf(3, 4)), {}


@program(subclass)
def pair_of_pairs() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.exp() * y, (x * x).sum(1)

    return f, (TwoTensor(two(3, 4), two(3, 4)).requires_grad_(), leaf(3, 4)), {}


@program(subclass)
def pair_made_inside() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return TwoTensor(x.detach() * 2, y.detach() + 1).cos()

    return f, (numbers(4), numbers(4)), {}


@program(subclass)
def pair_written() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        x.add_(y)
        return x * y

    return f, (two(3, 4), leaf(3, 4)), {}


@program(subclass)
def pair_written_that_is_no_leaf() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(y)
        return x.sin()

    return f, (two(3, 4, requires_grad=True) * 1, leaf(3, 4)), {}


@program(subclass)
def pair_returned_as_it_is_given() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2

    return f, (two(4, requires_grad=True),), {}


@program(subclass)
def views_of_a_pair() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second = x.split(2)
        return x.view(-1)[1:], first.t(), second

    return f, (two(4, 3, requires_grad=True),), {}


@program(subclass)
def views_of_a_pair_that_is_computed() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y.view(-1), y.t()[1:]

    return f, (two(4, 3, requires_grad=True),), {}


@program(subclass)
def view_of_a_pair_written_through() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        row = x[1]
        row.mul_(3)
        return row, x + 1

    return f, (two(4, 3),), {}


@program(subclass)
def inner_tensors_beside_a_view_of_the_pair() -> Made:
    """They are the very tensors of which the view's base is made."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y: Any = x.clone()
        return y.a, y.view(-1), y.b

    return f, (two(3, 4, requires_grad=True),), {}


@program(subclass)
def inner_tensors_beside_the_pair() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y: Any = x.sin()
        return y, y.b, y.a.exp()

    return f, (two(3, 4, requires_grad=True),), {}


@program(subclass)
def inner_tensors_of_two_clones() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y: Any = x.clone()
        z: Any = x.clone()
        return y.a, y.view(12), y.b, z.view(-1), z.a.t()

    return f, (two(3, 4),), {}


@program(subclass)
def pair_detached() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return x.detach(), y.detach() + y

    return f, (two(4, 3, requires_grad=True),), {}


@program(subclass)
def product_with_a_pair() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, w).relu()

    return f, (leaf(5, 4), two(3, 4, requires_grad=True)), {}


class Pairs(nn.Module):
    """A linear layer whose weight is a pair, with a buffer that is one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(3, 4))
        self.scale = nn.Buffer(two(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight) * self.scale


@program(subclass)
def module_with_pairs() -> Made:
    return Pairs(), (numbers(5, 4),), {}


class Quantized(Tensor):
    """A matrix in eight bits with a scale for each row. What no method of it computes is computed of its numbers."""

    def __new__(cls, whole: Tensor, scale: Tensor) -> Quantized:
        made: Quantized = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, whole.shape, strides=whole.stride(), dtype=scale.dtype, device=scale.device
        )
        return made

    def __init__(self, whole: Tensor, scale: Tensor) -> None:
        self.whole, self.scale = whole, scale

    @staticmethod
    def of(matrix: Tensor) -> Quantized:
        scale = matrix.abs().amax(1, keepdim=True) / 127
        return Quantized((matrix / scale).round().to(torch.int8), scale)

    def __tensor_flatten__(self) -> tuple[list[str], str]:
        return ["whole", "scale"], "int8"

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _context: str, _size: Any, _stride: Any) -> Quantized:
        return Quantized(inner["whole"], inner["scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(func(args[0].whole), func(args[0].scale))
        args, kwargs = pytree.tree_map_only(cls, lambda each: each.whole * each.scale, (args, kwargs or {}))
        return func(*args, **kwargs)


@program(subclass)
def quantized_weight_as_an_argument() -> Made:
    def f(x: Tensor, weight: Tensor) -> Tensor:
        return (x @ weight).sigmoid()

    return f, (leaf(5, 3), Quantized.of(torch.randn(3, 4))), {}


@program(subclass)
def pair_in_a_loop_over_its_rows() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([row.sin() * y for row in x.unbind()]).sum(0)

    return f, (two(3, 4, requires_grad=True), leaf(4)), {}


@program(subclass)
def pair_in_a_custom_function() -> Made:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * x.cos() * 2  # type: ignore[no-any-return]

    def f(x: Tensor) -> Tensor:
        return Sine.apply(x) * 2  # type: ignore[no-any-return, no-untyped-call]

    return f, (two(3, requires_grad=True),), {}


@program(subclass)
def pair_in_a_checkpoint() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        return checkpoint(lambda x, y: (x * y).sin() * x, x, y, use_reentrant=False)

    return f, (two(4, requires_grad=True), two(4, requires_grad=True)), {}


@program(subclass)
def pair_in_a_checkpoint_that_backward_reads_through_its_region_alone() -> Made:
    def f(x: Tensor) -> Any:
        return checkpoint(lambda x: x.exp().exp(), x, use_reentrant=False)

    return f, (two(4, requires_grad=True),), {}


@program(subclass)
def pair_in_a_region() -> Made:
    region = torch.compiler.nested_compile_region(lambda x: x.sin() * 2)

    def f(x: Tensor) -> Any:
        return region(x) + region(x + 1)

    return f, (two(3, requires_grad=True),), {}


@program(subclass)
def pair_of_pairs_written_through_a_view() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        view = x.view(-1)
        view.add_(1)
        return x.sum(), view

    return f, (TwoTensor(two(2, 3), two(2, 3)),), {}


@program(subclass)
def pair_as_a_buffer_that_is_written() -> Made:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", two(3))

        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(self.seen, Tensor)
            self.seen.mul_(2)
            return x * self.seen

    return Counted(), (leaf(3),), {}


@program(subclass)
def pair_whose_gradient_meets_that_of_a_plain_tensor() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, y * 2

    return f, (two(3, requires_grad=True), leaf(3)), {}
