"""Transforms of `torch.func` and of `torch.autograd.functional`, around a call and inside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

TRAIN = ("train",)
outside = "transforms-outside"


def _wave(x: Tensor) -> Tensor:
    return (x.sin() * x.flip(0)).exp()


def _through(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w)


def _summed(f: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda *args: f(*args).sum()


@program(outside, scenario=lambda f, x: grad(_summed(f))(x))
def gradient_of_a_call() -> Made:
    return _wave, (numbers(4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x, w: grad(_summed(f))(x, w))
def gradient_of_a_call_that_captures_a_leaf() -> Made:
    return _through, (numbers(3, 3), leaf(3, 3)), {}


@program(outside, scenario=lambda f, x: grad_and_value(_summed(f))(x))
def gradient_and_value_of_a_call() -> Made:
    return _wave, (numbers(4),), {}


@program(outside, scenario=lambda f, x: grad(_summed(grad(_summed(f))))(x))
def gradient_of_the_gradient_of_a_call() -> Made:
    return _wave, (numbers(4),), {}


def _pulled_back(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y, pull = vjp(f, x, w)[:2]
    return y, pull(torch.ones_like(y))


@program(outside, scenario=_pulled_back)
def vector_jacobian_product_of_a_call() -> Made:
    return _through, (numbers(3, 3), numbers(3, 3)), {}


@program(outside, scenario=lambda f, x: jvp(f, (x,), (torch.ones_like(x),)))
def jacobian_vector_product_of_a_call() -> Made:
    return _wave, (numbers(4),), {}


@program(outside, scenario=lambda f, x: vmap(f)(x))
def call_over_a_batch() -> Made:
    return _wave, (numbers(3, 4),), {}


@program(outside, scenario=lambda f, x, w: vmap(f, in_dims=(1, None))(x, w))
def call_over_a_batch_of_one_of_two_inputs() -> Made:
    return lambda x, w: torch.tanh(x * w).sum(), (numbers(3, 4), numbers(3)), {}


@program(outside, scenario=lambda f, x: vmap(grad(_summed(f)))(x))
def gradients_of_a_call_for_each_sample() -> Made:
    return _wave, (numbers(3, 4),), {}


@program(outside, scenario=lambda f, x: jacrev(f)(x))
def jacobian_of_a_call_row_by_row() -> Made:
    return _wave, (numbers(4),), {}


@program(outside, scenario=lambda f, x: jacfwd(f)(x))
def jacobian_of_a_call_column_by_column() -> Made:
    return _wave, (numbers(4),), {}


@program(outside, scenario=lambda f, x: hessian(_summed(f))(x))
def hessian_of_a_call() -> Made:
    return _wave, (numbers(4),), {}


def _of_parameters(f: Any, x: Tensor) -> Any:
    parameters = {name: parameter.detach() for name, parameter in f.named_parameters()}
    found = grad(lambda values: functional_call(f, values, (x,)).square().sum())(parameters)
    return [found[name] for name in sorted(found)]


@program(outside, modes=TRAIN, scenario=_of_parameters)
def gradient_with_respect_to_the_parameters_of_a_module() -> Made:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (numbers(2, 4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x: torch.autograd.functional.jacobian(f, x))
def jacobian_by_backward() -> Made:
    return _wave, (leaf(4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True))
def jacobian_by_one_backward_of_a_batch() -> Made:
    return _wave, (leaf(4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x: torch.autograd.functional.hvp(_summed(f), x, torch.ones_like(x)))
def hessian_vector_product_by_two_backwards() -> Made:
    return _wave, (leaf(4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x: torch.autograd.functional.jvp(f, x, torch.ones_like(x)))
def jacobian_vector_product_by_two_backwards() -> Made:
    return _wave, (leaf(4),), {}


@program(outside, modes=TRAIN, scenario=lambda f, x: torch.autograd.functional.vhp(_summed(f), x, torch.ones_like(x)))
def vector_hessian_product_by_two_backwards() -> Made:
    return _wave, (leaf(4),), {}


within = "transforms-inside"


@program(within)
def gradient_inside() -> Made:
    return lambda x: grad(_summed(_wave))(x) * 2, (numbers(4),), {}


@program(within)
def gradient_inside_of_a_function_of_a_leaf() -> Made:
    """The gradient is differentiated again by the caller."""
    return lambda x, w: grad(_summed(_through))(x, w) * w, (numbers(3, 3), leaf(3, 3)), {}


@program(within)
def gradient_inside_with_respect_to_a_leaf() -> Made:
    return lambda x: grad(_summed(_wave))(x).square(), (leaf(4),), {}


@program(within)
def gradient_of_a_gradient_inside() -> Made:
    return lambda x: grad(_summed(grad(_summed(_wave))))(x), (leaf(4),), {}


@program(within)
def vector_jacobian_product_inside() -> Made:
    def f(x: Tensor, w: Tensor) -> Any:
        y, pull = vjp(_through, x, w)[:2]
        return y, pull(y)

    return f, (numbers(3, 3), leaf(3, 3)), {}


@program(within)
def jacobian_vector_product_inside() -> Made:
    return lambda x, v: jvp(_wave, (x,), (v,)), (leaf(4), numbers(4)), {}


@program(within)
def batch_inside() -> Made:
    return lambda x, w: vmap(_through, in_dims=(0, None))(x, w), (numbers(2, 3, 3), leaf(3, 3)), {}


@program(within)
def gradients_for_each_sample_inside() -> Made:
    return lambda x, w: vmap(grad(_summed(_through)), in_dims=(0, None))(x, w), (numbers(2, 3, 3), leaf(3, 3)), {}


@program(within)
def jacobian_inside_row_by_row() -> Made:
    return lambda x: jacrev(_wave)(x), (leaf(4),), {}


@program(within)
def jacobian_inside_column_by_column() -> Made:
    return lambda x: jacfwd(_wave)(x), (leaf(4),), {}


@program(within)
def hessian_inside() -> Made:
    return lambda x: hessian(_summed(_wave))(x), (leaf(4),), {}


@program(within)
def batch_inside_that_writes_an_intermediate() -> Made:
    def f(x: Tensor) -> Tensor:
        def each(row: Tensor) -> Tensor:
            y = row * 2
            y.add_(row.sum())
            return y[1:]

        return vmap(each)(x)

    return f, (leaf(3, 4),), {}


@program(within, modes=TRAIN)
def gradient_by_autograd_inside() -> Made:
    """Dynamo leaves `torch.autograd.grad` to eager, or traces it."""

    def f(x: Tensor) -> Tensor:
        y = _wave(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return slope * y

    return f, (leaf(4),), {}


@program(within, modes=TRAIN)
def backward_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        y = _wave(x)
        y.sum().backward()
        return x * 2

    return f, (leaf(4),), {}


@program(within, modes=TRAIN)
def gradient_by_autograd_inside_of_an_inner_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = _through(x, w)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return slope * w

    return f, (inner(3, 3), leaf(3, 3)), {}
