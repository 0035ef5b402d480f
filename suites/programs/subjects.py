"""What the state machine drives: small callables, each with one thing about memory or state that is easy to lose.

Adding one is adding it to `SUBJECTS`. Its source is printed into the script of a failure, so it names nothing but
torch, nn, Tensor and what it lists as `needs`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from assay.harness.search.twin import Argument, Subject


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.norm(self.linear(x)).relu())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x).tanh()
        return self.second(hidden), hidden


class Counter(nn.Module):
    calls: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        y = x * self.weight * self.calls
        self.last.copy_(y.detach().sum(0))
        return y, self.last


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        new = self.cell(x, h)
        return new[:, :2], new


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4), requires_grad=False)
        self.shift = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> dict[int, Tensor]:
        return {0: x * self.scale, 1: x + self.shift, 2: self.shift.view(2, 2)}


def add_into_first(a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    return a * b


def write_through_view(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    a[:, 1:].mul_(2)
    return a.sum(0), b.cos()


def return_written_and_view(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    early = a.view(-1)
    a.mul_(2)
    return a, early, a[1:]


def write_both(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    b.add_(1)
    return a + b


def views_of_inputs(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return a.t(), b[:, ::2], a.detach()


def returns_its_input(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return a, b * 2, a


def views_of_an_intermediate(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = a.sin()
    return y[:, 1:], y.t(), y.view(-1)


def chunks(a: Tensor) -> tuple[Tensor, ...]:
    return (a * 2).chunk(2, 1)


def detached(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = a.exp()
    return y, y.detach(), a.detach()


def no_grad_write(a: Tensor, b: Tensor) -> Tensor:
    with torch.no_grad():
        a.mul_(2)
    return a * b


def noisy(a: Tensor) -> tuple[Tensor, Tensor]:
    noise = torch.rand_like(a)
    return a * noise, torch.nn.functional.dropout(a, 0.5)


def swap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    old = a.clone()
    a.copy_(b)
    b.copy_(old)
    return b, a


def shift_within(a: Tensor) -> Tensor:
    a[1:] = a[:-1].clone()
    return a.cumsum(0)


def count_up(i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    i += j
    return i // 2, j.view(-1)


def mixed(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x + i, (i * 2).t(), x.double() * i


class Pair(NamedTuple):
    left: Tensor
    right: Any


def apart(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a.sin(), b.cos()


def nested(a: Tensor, b: Tensor) -> Pair:
    return Pair(a * 2, [b, {1: a.view(-1), 2: None}, (a + b, 3)])


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def own_function(a: Tensor) -> tuple[Tensor, Tensor]:
    return Cube.apply(a), a.relu()


def saves_its_result(a: Tensor) -> tuple[Tensor, Tensor]:
    y = a.exp()
    return y, y * a


def matrices(a: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.linear(a, b.t() @ b)


def stops_gradients(a: Tensor) -> Tensor:
    y = a * 3
    torch.set_grad_enabled(False)
    return y


def breaks(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    torch._dynamo.graph_break()
    return a + b


TWO = (Argument(), Argument())
WHOLE = Argument(dtype=torch.int64)
DOUBLE = Argument(dtype=torch.float64)

SUBJECTS = (
    Subject(add_into_first, TWO),
    Subject(write_through_view, TWO),
    Subject(return_written_and_view),
    Subject(write_both, TWO),
    Subject(views_of_inputs, TWO),
    Subject(returns_its_input, TWO),
    Subject(views_of_an_intermediate),
    Subject(chunks),
    Subject(detached),
    Subject(no_grad_write, TWO),
    Subject(noisy),
    Subject(swap, (DOUBLE, DOUBLE)),
    Subject(shift_within, (DOUBLE,)),
    Subject(count_up, (WHOLE, WHOLE)),
    Subject(mixed, (Argument(), WHOLE)),
    Subject(apart, TWO),
    Subject(nested, TWO, needs=(Pair,)),
    Subject(own_function, needs=(Cube,)),
    Subject(saves_its_result, (DOUBLE,)),
    Subject(matrices, TWO),
    Subject(stops_gradients),
    Subject(breaks, TWO, graphs=2),
    Subject(Norms),
    Subject(Tied),
    Subject(Counter),
    Subject(Cell, TWO),
    Subject(Frozen),
)
