"""Gradients of gradients taken by the caller: penalties, Hessian-vector products, inner training steps, forces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

higher = "higher-order"
TRAIN = ("train",)


def _scalar(result: Any) -> Tensor:
    """A number that every tensor of a result goes into, squared so that its gradient depends on it."""
    results = result if isinstance(result, tuple | list) else [result]
    return sum((each.square().sum() for each in results if each.requires_grad), torch.zeros(()))


def _grads(of: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Tensor | None]:
    return list(torch.autograd.grad(of, inputs, create_graph=create_graph, allow_unused=True))


def _norm(gradients: Sequence[Tensor | None]) -> Tensor:
    return sum((g.square().sum() for g in gradients if g is not None), torch.zeros(()))


def _ones(*shape: int) -> Tensor:
    """A leaf whose products are exact in every dtype."""
    return torch.randint(-1, 2, shape).float().requires_grad_()


def _to_order(order: int) -> Callable[..., Any]:
    """The gradients of all orders up to this one, each of the squared norm of those before."""

    def scenario(f: Callable[..., Any], *inputs: Tensor) -> Any:
        leaves = [x for x in inputs if x.requires_grad]
        value, found = _scalar(f(*inputs)), []
        for depth in range(order):
            gradients = _grads(value, leaves, create_graph=depth + 1 < order)
            found.append([None if g is None else (g.detach().clone(), g.requires_grad) for g in gradients])
            value = _norm(gradients)
        return found

    return scenario


def _smooth(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w).exp() * x.sum()


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_gradients() -> Made:
    return _smooth, (leaf(3, 3), leaf(3, 3)), {}


def _of_loss(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    """The gradient of a penalty on the gradient of a loss, whose logits are a result as well."""
    logits, loss = f(x, w)
    (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
    return logits, gradient, torch.autograd.grad(gradient.float().square().sum(), w)


@program(higher, modes=TRAIN, scenario=_of_loss)
def second_order_of_a_loss_of_half_logits() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = x @ w
        return logits, F.cross_entropy(logits.float(), torch.arange(4) * 16)

    return f, (numbers(4, 6).bfloat16(), torch.randn(6, 64).bfloat16().requires_grad_()), {}


def _from_lazy_cotangents(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    """Gradients under cotangents that are conjugated, and negated, by a bit; and of the imaginary part of those."""
    y = f(x, w)
    torch.manual_seed(1)
    given = torch.randn_like(y.detach())
    found = [torch.autograd.grad(y, (x, w), one, retain_graph=True) for one in (given.conj(), torch._neg_view(given))]
    (first,) = torch.autograd.grad(y, x, given, create_graph=True)
    last = torch.view_as_real(first.conj()).sum() + first.conj().imag.sum()
    return [g.detach().clone() for pair in found for g in pair], torch.autograd.grad(last, (x, w))


@program(higher, modes=TRAIN, scenario=_from_lazy_cotangents)
def gradients_under_cotangents_that_are_conjugated_by_a_bit() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x.conj() * w).sin()

    made = torch.randn(2, 3, 2)
    x, w = (torch.view_as_complex(part).requires_grad_() for part in (made, made.flip(0).contiguous()))
    return f, (x, w), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_gradients_of_what_backward_reads_in_no_input() -> Made:
    """Backward reads a difference of the inputs; its own gradients read each of them, as eager saves them."""
    return torch.lerp, (leaf(3), leaf(3), leaf(3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_gradients_of_a_difference_of_none() -> Made:
    def f(x: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """With `n=0` nothing is put before or after."""
        return torch.diff(x, n=0, prepend=before, append=after).tanh()

    return f, (leaf(2, 3), leaf(2, 1), leaf(2, 2)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_through_a_write_by_a_formula_that_is_constant() -> Made:
    """The gradient of `abs` is a sign, whose own gradient autograd knows to be zero without making the zeros."""

    def f(x: Tensor) -> Tensor:
        both = torch.stack([x, x * 2])
        both.reshape(1, -1).abs_()
        return both

    return f, (leaf(3),), {}


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x).tanh()
        return self.second(hidden), hidden


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_through_a_weight_that_two_layers_have() -> Made:
    """What backward reads of the weight is a view of it."""
    return _Tied(), (leaf(4, 4),), {}


def _add_into(a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    return a * b


def _behind_a_second_call(f: Callable[..., Any], x: Tensor) -> Any:
    """Of the first call only what it wrote leads on, whose gradients read nothing that the second overwrites."""
    changed = x.clone()
    f(changed, changed)
    (first,) = torch.autograd.grad(f(changed, changed).square().sum(), [x], create_graph=True)
    return first.detach().clone(), torch.autograd.grad(first.square().sum(), [x])


@program(higher, modes=TRAIN, scenario=_behind_a_second_call)
def second_order_through_two_calls_that_write_one_input() -> Made:
    return _add_into, (leaf(2, 4),), {}


def _of_the_second(f: Callable[..., Any], x: Tensor, base: Tensor) -> Any:
    given = base.expand(3, -1)
    (first,) = torch.autograd.grad(f(x.clone(), given).square().sum(), [base], create_graph=True)
    return first.detach().clone(), torch.autograd.grad(first.square().sum(), [given])


@program(higher, modes=TRAIN, scenario=_of_the_second)
def second_order_where_a_written_input_takes_no_gradient() -> Made:
    return _add_into, (numbers(3, 4), leaf(1, 4)), {}


@program(higher, modes=TRAIN, scenario=_to_order(3))
def third_order_gradients() -> Made:
    return _smooth, (leaf(3, 3), leaf(3, 3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(4))
def fourth_order_gradients() -> Made:
    return _smooth, (leaf(2, 2), leaf(2, 2)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_with_respect_to_one_of_two_inputs() -> Made:
    return _smooth, (numbers(3, 3), leaf(3, 3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_several_results() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = (x * w).sin()
        return y, y.exp(), x * 2

    return f, (leaf(3), leaf(3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_what_is_constant_under_no_grad() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.exp() * x
        return (x * scale).sin() * scale

    return f, (leaf(3),), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_what_is_detached() -> Made:
    def f(x: Tensor) -> Tensor:
        scale = x.sin()
        return (x * scale.detach()).exp() + scale

    return f, (leaf(3),), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_a_linear_program() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return x @ w + x.sum()

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_indexing_and_reductions() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        rows = x[torch.tensor([2, 0, 0])] * w
        return rows.var(1) + rows.logsumexp(0) + rows.cumsum(1)[:, -1]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_norms_and_softmax() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return F.softmax(F.layer_norm(x, (4,), w) * 2, -1).log()

    return f, (leaf(3, 4), leaf(4)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_a_batch_norm() -> Made:
    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, w, b, training=True).tanh()

    return f, (leaf(5, 3), leaf(3), leaf(3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_a_convolution() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return F.max_pool2d(F.conv2d(x, w, padding=1).tanh(), 2)

    return f, (leaf(2, 3, 4, 4), leaf(4, 3, 3, 3)), {}


def _result_and_slope_together(f: Callable[..., Any], x: Tensor) -> Any:
    y = f(x)
    (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    torch.autograd.backward([y, slope], [torch.ones_like(y), torch.ones_like(slope)])
    return y.detach(), x.grad


@program(higher, modes=TRAIN, scenario=_result_and_slope_together)
def result_and_slope_differentiated_together_where_both_are_infinite() -> Made:
    """Eager adds what gets to the result before it goes on to the input: both are infinite there, of one sign."""
    return torch.rsqrt, (torch.zeros(1, requires_grad=True),), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_what_is_written_by_strides() -> Made:
    """No graph is given the inputs themselves then; what backward reads of them still leads to them."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x * w).as_strided_scatter(w[:2].square(), (2,), (3,), 1) + x.square()

    return f, (leaf(6), inner(6)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_attention_written_out() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.softmax(q @ k.transpose(-2, -1) / 2.0, -1) @ v

    return f, (leaf(2, 3, 4, 4), leaf(2, 3, 4, 4), leaf(2, 3, 4, 4)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_dropout() -> Made:
    def f(x: Tensor) -> Tensor:
        return F.dropout(x.sin(), 0.5).exp()

    return f, (leaf(8, 8),), {}


def _through_a_copy(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    return _to_order(2)(lambda *leaves: f(leaves[0].clone(), leaves[1]), x, w)


@program(higher, modes=TRAIN, scenario=_through_a_copy)
def second_order_where_an_input_is_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(w)
        return x.sin() * w

    return f, (leaf(3), leaf(3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_with_respect_to_an_input_after_it_was_mutated() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(w)
        return x.sin() * w

    return f, (inner(3), leaf(3)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_through_a_view_of_a_result() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp() * x
        return y, y.t()[1:]

    return f, (leaf(3, 4),), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_under_autocast() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ w).float()

    return f, (_ones(2, 2), _ones(2, 2)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_a_curve_under_autocast() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.tanh(x @ w).float()

    return f, (leaf(4, 4), leaf(4, 4)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_complex_numbers() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.view_as_real(torch.complex(x, w).exp())

    return f, (leaf(3), leaf(3)), {}


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x * x * 3


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_of_a_function_of_the_users_own() -> Made:
    def f(x: Tensor) -> Tensor:
        return _Cube.apply(x.sin()) * x  # type: ignore[no-any-return, no-untyped-call]

    return f, (leaf(3),), {}


def _penalty(f: Callable[..., Any], x: Tensor) -> Any:
    y = f(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = y.square().mean() + (slope.norm() - 1).square()
    loss.backward()
    return loss.detach(), slope.detach(), x.grad


@program(higher, modes=TRAIN, scenario=_penalty)
def gradient_penalty_of_a_module() -> Made:
    return nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 2)), (leaf(5, 4),), {}


@program(higher, modes=TRAIN, scenario=_penalty)
def gradient_penalty_of_a_module_with_one_output() -> Made:
    return nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)), (leaf(5, 4),), {}


def _hessian_times_vector(f: Callable[..., Any], x: Tensor, v: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope, x, v)


@program(higher, modes=TRAIN, scenario=_hessian_times_vector)
def hessian_vector_product() -> Made:
    return lambda x: (x.sin() * x.flip(0)).exp(), (leaf(4), numbers(4)), {}


@program(higher, modes=TRAIN, scenario=_to_order(2))
def second_order_beside_an_input_that_gets_no_gradient() -> Made:
    def f(x: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
        return torch.copysign(x, x).exp(), unused.detach() * 2

    return f, (inner(3), inner(3)), {}


def _both_orders_at_once(f: Callable[..., Any], x: Tensor) -> Any:
    y = f(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return torch.autograd.grad(y.sum() + slope.sum(), x)


@program(higher, modes=TRAIN, scenario=_both_orders_at_once)
def gradients_of_both_orders_that_are_infinite() -> Made:
    return lambda x: x.reciprocal(), (torch.tensor([0.0, 1.5], requires_grad=True),), {}


def _whole_hessian(f: Callable[..., Any], x: Tensor) -> Any:
    return torch.autograd.functional.hessian(lambda z: f(z).sum(), x)


@program(higher, modes=TRAIN, scenario=_whole_hessian)
def hessian_row_by_row() -> Made:
    return lambda x: (x.sin() * x.flip(0)).exp(), (leaf(4),), {}


def _inner_steps(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    fast = w
    for _ in range(2):
        (slope,) = torch.autograd.grad(f(x, fast).square().mean(), fast, create_graph=True)
        fast = fast - 0.1 * slope
    f(x * 2, fast).square().mean().backward()
    return fast.detach(), w.grad


@program(higher, modes=TRAIN, scenario=_inner_steps)
def inner_training_steps_that_are_differentiated() -> Made:
    return lambda x, w: torch.tanh(x @ w), (numbers(5, 3), leaf(3, 2)), {}


def _forces(f: Callable[..., Any], positions: Tensor, w: Tensor) -> Any:
    energy = f(positions, w)
    (forces,) = torch.autograd.grad(energy, positions, create_graph=True)
    (energy.square() + forces.square().sum()).backward()
    return energy.detach(), forces.detach(), positions.grad, w.grad


@program(higher, modes=TRAIN, scenario=_forces)
def forces_that_are_differentiated() -> Made:
    def f(positions: Tensor, w: Tensor) -> Tensor:
        apart = positions[:, None] - positions[None]
        distances = (apart.square().sum(-1) + 1).sqrt()
        return (torch.exp(-distances * w) / distances).sum()

    return f, (leaf(4, 3), leaf(4, 4)), {}


def _backward_with_graph(f: Callable[..., Any], x: Tensor) -> Any:
    f(x).square().sum().backward(create_graph=True)
    first = x.grad
    assert first is not None
    x.grad = None
    first.square().sum().backward()
    return first.detach(), first.requires_grad, x.grad


@program(higher, modes=TRAIN, scenario=_backward_with_graph)
def backward_that_creates_a_graph() -> Made:
    return lambda x: x.sin() * x, (leaf(3),), {}


def _ordinary_after_graph(f: Callable[..., Any], x: Tensor) -> Any:
    y = f(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x, retain_graph=True)
    (both,) = torch.autograd.grad(slope.sum() + y.sum(), x)
    return slope.detach(), again, second, both


@program(higher, modes=TRAIN, scenario=_ordinary_after_graph)
def gradients_of_both_orders_in_turn() -> Made:
    return lambda x: x.exp() * x.sin(), (leaf(3),), {}


def _twice_in_one_graph(f: Callable[..., Any], x: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(f(x)).sum(), x, create_graph=True)
    return torch.autograd.grad(f(slope).sum(), x)


@program(higher, modes=TRAIN, scenario=_twice_in_one_graph)
def second_order_through_two_calls_and_a_third_on_the_slope() -> Made:
    return lambda x: x.sin() * x, (leaf(3),), {}


def _tangent_requires_grad(f: Callable[..., Any], x: Tensor, v: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x), x, v, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), [x, v], allow_unused=True)


@program(higher, modes=TRAIN, scenario=_tangent_requires_grad)
def gradient_with_respect_to_a_tangent() -> Made:
    return lambda x: x.sin(), (leaf(3), leaf(3)), {}


def _some_results(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    y, _ = f(x, w)
    slopes = torch.autograd.grad(y.sum(), [x, w], create_graph=True, allow_unused=True)
    second = torch.autograd.grad(_norm(slopes), [x, w], allow_unused=True)
    return [None if s is None else s.detach() for s in slopes], second


@program(higher, modes=TRAIN, scenario=_some_results)
def second_order_through_one_of_two_results() -> Made:
    return lambda x, w: (x.sin(), (x * w).exp()), (leaf(3), leaf(3)), {}


def _written_between(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
    with torch.no_grad():
        w.add_(1)
    return torch.autograd.grad(slope.sum(), x)


@program(higher, "raises", modes=TRAIN, scenario=_written_between)
def second_order_of_what_was_written_since_is_an_error() -> Made:
    return lambda x, w: (x * w).sin(), (leaf(3), leaf(3)), {}


def _without_graph(f: Callable[..., Any], x: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x).sum(), x)
    return torch.autograd.grad(slope.sum(), x)


@program(higher, "raises", modes=TRAIN, scenario=_without_graph)
def second_order_without_a_graph_is_an_error() -> Made:
    return lambda x: x.sin(), (leaf(3),), {}


def _freed(f: Callable[..., Any], x: Tensor) -> Any:
    (slope,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    torch.autograd.grad(slope.sum(), x)
    return torch.autograd.grad(slope.sum(), x)


@program(higher, "raises", modes=TRAIN, scenario=_freed)
def second_order_twice_without_retaining_is_an_error() -> Made:
    return lambda x: x.sin(), (leaf(3),), {}


def _with_what_depends_on_a_part(f: Callable[..., Any], x: Tensor) -> Any:
    y = f(x.clone()[2:28].view(2, 13))
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    return gradient.detach().clone(), gradient.requires_grad


@program(higher, modes=TRAIN, scenario=_with_what_depends_on_a_part)
def gradient_of_a_part_that_is_overwritten() -> Made:
    """It is zero whatever the part was, and in eager still follows from it."""

    def f(x: Tensor) -> Tensor:
        x.fill_(2)
        return x @ x.mT

    return f, (leaf(35),), {}


def _of_a_base_of_one_row(f: Callable[..., Any], x: Tensor) -> Any:
    (gradient,) = torch.autograd.grad(_scalar(f(x.clone().expand(0, -1))), x, create_graph=True)
    return gradient.detach().clone(), gradient.requires_grad


@program(higher, modes=TRAIN, scenario=_of_a_base_of_one_row)
def second_order_through_a_written_view_of_no_elements() -> Made:
    """Eager's gradient of the view is zeros that lead nowhere, as that of every `as_strided` of no elements is."""

    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x * x

    return f, (leaf(1, 4),), {}
