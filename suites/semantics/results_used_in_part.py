"""Backward from some of a call's results: each alone, and all but the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

TRAIN = ("train",)

part = "results-used-in-part"


def _subsets(results: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    yield from ([result] for result in results)
    yield list(results[1:])


def _leaves(f: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    owned = f.parameters() if isinstance(f, nn.Module) else ()
    return [value for value in (*owned, *inputs) if value.requires_grad]


def _tangent(value: Tensor) -> Tensor:
    """Other numbers for each element, which lie as the value does."""
    return torch.empty_like(value).copy_(torch.linspace(1, 2, value.numel()).view(value.shape))


def _each_in_turn(f: Callable[..., Any], *inputs: Tensor) -> Any:
    """The gradients of each subset, with a call of its own."""
    found: list[Tensor | None] = []
    for index in range(len(tuple(f(*inputs))) + 1):
        chosen = list(_subsets(tuple(f(*inputs))))[index]
        tangents = [_tangent(value) for value in chosen]
        found += torch.autograd.grad(chosen, _leaves(f, inputs), tangents, allow_unused=True)
    return [None if gradient is None else gradient.clone() for gradient in found]


@program(part, modes=TRAIN, scenario=_each_in_turn)
def stacked_products_and_the_last_of_them() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h, g = x[0] @ w.t(), x[1] @ w.t()
        return torch.stack([h, g]), g

    return f, (numbers(2, 3, 4), leaf(5, 4)), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def joined_products_and_a_transposed_one() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h, g = x[0] @ w, (x[1] @ w).t()
        return torch.cat([h, g.t()], 1), g, h.sum(0)

    return f, (numbers(2, 3, 4), leaf(4, 4)), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def part_of_a_value_read_by_its_strides() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = (x * w).exp()
        return torch.stack([h, h.sin()]), h.as_strided((2, 3), (1, 2), 1), h

    return f, (numbers(2, 6), leaf(2, 6)), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def conjugated_and_imaginary_parts() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        z = torch.view_as_complex(x.sin())
        return z.conj() * 2, z.imag, torch.stack([z, z.conj()])

    return f, (leaf(3, 4, 2),), {}


def _with_a_zero(count: int) -> Tensor:
    return torch.linspace(-1, 1, count, dtype=torch.float64).requires_grad_()


@program(part, modes=TRAIN, scenario=_each_in_turn)
def diagonal_beside_a_quotient_by_zero() -> Made:
    """Two gradients are added whose sizes are equal, though with dynamic sizes they are written differently."""
    return lambda x: (x.diag_embed(8), torch.addcdiv(x, x, x, value=-1)), (_with_a_zero(17),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def parts_beside_quotients_by_zero() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        first, second = x.split(9)
        return second * 2, first.abs().sqrt(), x[3:].flip(0), 1 / x.repeat(2).diag_embed().diagonal()

    return f, (_with_a_zero(17),), {}


class Recurrent(nn.Module):
    """A cell of its author's own, unrolled: returns all the hidden states, and the last one."""

    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.cell, self.width = cell, width

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x.new_zeros(x.shape[1], self.width)
        states = []
        for step in x:
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states), states[-1]


class Elman(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.given, self.held = nn.Linear(inputs, width), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.given(x) + self.held(state))


class Gated(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + width, 2 * width)
        self.new = nn.Linear(inputs + width, width)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        reset, keep = self.gates(torch.cat([x, state], -1)).sigmoid().chunk(2, -1)
        new = torch.tanh(self.new(torch.cat([x, reset * state], -1)))
        return keep * state + (1 - keep) * new


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, membrane: Tensor) -> Tensor:
        ctx.save_for_backward(membrane)
        return (membrane > 0).to(membrane.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (membrane,) = ctx.saved_tensors
        slope: Tensor = gradient / (1 + (3.0 * membrane).abs()) ** 2
        return slope


class Spiking(nn.Module):
    """A leaky neuron that is reset by what it fires, with a surrogate gradient: spikes of all steps, last membrane."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.decay = nn.Parameter(torch.full((width,), 0.9))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        membrane = x.new_zeros(x.shape[1], self.decay.shape[0])
        spikes = []
        for step in x:
            membrane = self.decay * membrane + self.linear(step)
            spike: Tensor = _Spike.apply(membrane - 0.2)  # type: ignore[no-untyped-call]
            membrane = membrane - spike.detach() * 0.2
            spikes.append(spike)
        return torch.stack(spikes), membrane


@program(part, modes=TRAIN, scenario=_each_in_turn)
def recurrent_cell_written_by_hand() -> Made:
    return Recurrent(Elman(4, 5), 5), (numbers(3, 2, 4),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def gated_cell_written_by_hand() -> Made:
    return Recurrent(Gated(4, 5), 5), (numbers(3, 2, 4),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def recurrent_cell_of_torch() -> Made:
    return Recurrent(nn.GRUCell(4, 5), 5), (numbers(3, 2, 4),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def spiking_neurons() -> Made:
    return Spiking(4, 5), (numbers(4, 2, 4),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def zeros_that_lie_otherwise_than_a_sum() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.floor(), x.cumsum(-2), x.t().reshape(-1) * 2

    return f, (numbers(2, 3).t().requires_grad_(),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def product_seen_in_rows_that_lies_in_columns() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = (x * w).sin()
        return h.reshape(-1) * 2, (h + 1).t() @ h, h.unsqueeze(0)

    return f, (numbers(3, 4), leaf(4, 3).t().detach().requires_grad_()), {}


def _written_around(when: int, of: int, is_inner: bool = False) -> Callable[..., Any]:
    """The gradients of two orders of one result, where the input is written before the first or between them."""

    def scenario(f: Callable[..., Any], *inputs: Tensor) -> Any:
        given = [value.clone() if is_inner else value for value in inputs]
        value, found = f(*given)[of].square().sum(), []
        for order in range(2):
            if order == when:
                with torch.no_grad():
                    given[0].mul_(2)
            gradients = torch.autograd.grad(value, _leaves(f, inputs), create_graph=order == 0, allow_unused=True)
            found.append([None if g is None else (g.detach().clone(), g.requires_grad) for g in gradients])
            value = sum((g.square().sum() for g in gradients if g is not None), torch.zeros(()))
        return found

    return scenario


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def _cube_and_positive(x: Tensor) -> tuple[Tensor, Tensor]:
    return _Cube.apply(x), x.relu()  # type: ignore[no-untyped-call]


@program(part, modes=TRAIN, scenario=_written_around(0, of=1))
def second_order_of_what_reads_no_input_written_before() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, modes=TRAIN, scenario=_written_around(1, of=1))
def second_order_of_what_reads_no_input_written_between() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, modes=TRAIN, scenario=_written_around(0, of=1, is_inner=True))
def second_order_of_what_reads_no_intermediate_written_before() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, modes=TRAIN, scenario=_written_around(1, of=1, is_inner=True))
def second_order_of_what_reads_no_intermediate_written_between() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, "raises", modes=TRAIN, scenario=_written_around(0, of=0))
def second_order_of_what_reads_an_input_written_before() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, "raises", modes=TRAIN, scenario=_written_around(1, of=0))
def second_order_of_what_reads_an_input_written_between() -> Made:
    return _cube_and_positive, (leaf(5, 4),), {}


@program(part, modes=TRAIN, scenario=_written_around(0, of=1))
def second_order_beside_an_input_that_the_call_writes() -> Made:
    """The other result alone reads what the call has written, and what is written again before backward."""

    def f(buffer: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        buffer.mul_(2)
        return x * buffer, x.exp()

    return f, (numbers(3), leaf(3)), {}


def _beside_a_view_without_gradients(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    """The view requires a gradient in name, and nothing leads from it to its base."""
    with torch.no_grad():
        view = base[1:]
    found: list[Tensor | None] = []
    for index in range(2):
        w.register_hook(lambda gradient: gradient * 2)
        found += torch.autograd.grad(f(view, w)[index].sum(), [w, base], allow_unused=True)
    return found


@program(part, modes=TRAIN, scenario=_beside_a_view_without_gradients)
def one_of_two_beside_a_view_that_was_taken_without_gradients() -> Made:
    def f(view: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return view.sin() * w, w.exp()

    return f, (leaf(4), leaf(3)), {}


def _of_the_view_alone(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    with torch.no_grad():
        view = base[1:]
    f(view, w)[0].sum().backward()
    return w.grad


@program(part, modes=TRAIN, scenario=_of_the_view_alone)
def a_view_that_was_taken_without_gradients_and_nothing_of_the_other() -> Made:
    def f(view: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return view.sin(), w.exp()

    return f, (leaf(4), leaf(3)), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def zeros_that_a_formula_gives_beside_another() -> Made:
    """The gradient of a power of 0 is zeros, which follow from no tangent: None is not the same."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x**0, x * 2, x.sign()

    return f, (leaf(3),), {}


@program(part, modes=TRAIN, scenario=_each_in_turn)
def signed_zeros_beside_the_zeros_of_a_result_that_is_not_used() -> Made:
    """Eager adds no zeros by a rounding that gets no gradient: -0.0 stays -0.0."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.floor(), x * -0.0, x.view(2, 2).round().flip(0), x[1:] * 2

    return f, (leaf(4),), {}
