"""Programs whose results share memory with inputs, with intermediates, or with each other."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.case import Made, case
from suites.semantics.mutation import leaf


@case(tags=("alias",))
def output_is_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x, w * 2

    return f, (torch.randn(3), leaf(3)), {}


@case(tags=("alias",))
def output_is_a_view_of_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.t()[1:], x.sum() * w

    return f, (torch.randn(3, 4), leaf(3)), {}


@case(tags=("alias",))
def output_is_a_view_of_a_leaf() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.view(2, 6).transpose(0, 1)

    return f, (leaf(3, 4),), {}


@case(tags=("alias", "mutation"))
def output_is_a_view_of_a_mutated_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        early = x.view(-1)
        x.mul_(2)
        return early, x[0] * w

    return f, (torch.randn(3, 4), leaf(4)), {}


@case(tags=("alias",))
def two_outputs_view_one_intermediate() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w * 2
        return y.view(-1), y.t()

    return f, (leaf(3, 4),), {}


@case(tags=("alias",))
def output_is_a_view_of_another_output() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = w.exp()
        return y[0], y, y.unsqueeze(0)

    return f, (leaf(3, 4),), {}


@case(tags=("alias",))
def one_intermediate_returned_twice() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        y = w.sin()
        return y, y

    return f, (leaf(3),), {}


@case(tags=("alias",))
def equal_outputs_stay_two_tensors() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        return w * 2, w * 2

    return f, (leaf(3),), {}


@case(tags=("alias",))
def detached_views() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = w * 3
        return y, y.detach(), w.detach()

    return f, (leaf(3),), {}


@case(tags=("alias",))
def split_of_an_intermediate() -> Made:
    def f(w: Tensor) -> tuple[Tensor, ...]:
        return (w * 2).split(2)

    return f, (leaf(4, 3),), {}


@case(tags=("alias",))
def same_tensor_passed_twice() -> Made:
    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return a * w + b

    x = torch.randn(3)
    return f, (x, x, leaf(3)), {}


@case(tags=("alias",))
def same_leaf_passed_twice() -> Made:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return a * b.sin()

    w = leaf(3)
    return f, (w, w), {}


@case(tags=("alias", "mutation"))
def same_tensor_passed_twice_and_mutated() -> Made:
    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        a.add_(1)
        return b * w

    x = torch.randn(3)
    return f, (x, x, leaf(3)), {}
