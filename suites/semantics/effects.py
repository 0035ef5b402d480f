"""Programs with operators that are registered as ones with an effect.

Each runs as often as in eager, and in the same order, in forward and in backward. Each draws from torch's generator,
so its numbers tell what ran before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import integers, leaf, numbers, program

effect = "effect"


@torch.library.custom_op("assay_effects::drawn", mutates_args=())
def drawn(x: Tensor, times: int) -> Tensor:
    """The input times the last of some numbers that it draws."""
    return x * float(torch.rand(times)[-1])


@drawn.register_fake
def _(x: Tensor, times: int) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("assay_effects::noted", mutates_args=())
def noted(x: Tensor, times: int) -> None:
    """An effect alone."""
    torch.rand(times)


@noted.register_fake
def _(x: Tensor, times: int) -> None:
    return None


@torch.library.custom_op("assay_effects::both", mutates_args=())
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    number = int(torch.randint(1, 99, ()))
    return x + number, x - number


@both.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("assay_effects::differentiated", mutates_args=())
def differentiated(x: Tensor) -> Tensor:
    return x * float(torch.rand(()))


@differentiated.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _nothing_saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _gradient_with_effect(ctx: Any, gradient: Tensor) -> Tensor:
    return drawn(gradient, 1)


differentiated.register_autograd(_gradient_with_effect, setup_context=_nothing_saved)
for _operator in (drawn, noted, both, differentiated):
    _register_effectful_op(_operator._opoverload, EffectType.ORDERED)


class InBackward(torch.autograd.Function):
    """Effects in its backward alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, times: int) -> Tensor:
        ctx.times = times
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        noted(gradient, ctx.times)
        return drawn(gradient, ctx.times) * x.cos(), None


@program(effect)
def effects_in_forward() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = drawn(x, 1)
        noted(x, 2)
        return drawn(y, 3) * w

    return f, (numbers(3), leaf(3)), {}


@program(effect)
def effects_that_nobody_reads() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        drawn(x, 1)
        both(x)
        noted(w.detach(), 5)
        return drawn(x, 1) + w

    return f, (numbers(3), leaf(3)), {}


@program(effect)
def effects_alike_twice() -> Made:
    """They are no common subexpression."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return drawn(x, 1) * w, drawn(x, 1)

    return f, (numbers(3), leaf(3)), {}


@program(effect)
def effects_of_constants() -> Made:
    """They are not folded."""

    def f(w: Tensor) -> Tensor:
        return drawn(torch.ones(3, device=w.device), 1) * w

    return f, (leaf(3),), {}


@program(effect)
def effect_with_two_results() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        first, second = both(x)
        return first * w + both(second)[1]

    return f, (integers(3), leaf(3)), {}


@program(effect)
def effect_in_the_backward_of_an_operator() -> Made:
    return lambda x: differentiated(x.sin()).cos(), (leaf(3),), {}


class DrawsInBackward(torch.autograd.Function):
    """Its backward draws, and has an effect, without a look at the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * drawn(x.detach(), 2) + torch.rand_like(x)


@program(effect)
def effects_in_backward_that_read_no_gradient() -> Made:
    """They come behind the draws of forward."""
    return lambda x: DrawsInBackward.apply(x).sin() * torch.rand_like(x), (leaf(3),), {}


@program(effect)
def effect_in_backward_between_those_of_forward() -> Made:
    def f(x: Tensor) -> Tensor:
        y = differentiated(DrawsInBackward.apply(x))
        return DrawsInBackward.apply(y) * drawn(x.detach(), 3)

    return f, (leaf(3),), {}


@program(effect)
def effects_in_the_backward_of_a_chain() -> Made:
    return lambda x: InBackward.apply(InBackward.apply(x, 1), 2).cos(), (leaf(3),), {}


@program(effect)
def effects_in_the_backwards_of_two_results() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return InBackward.apply(x, 1), InBackward.apply(y, 2) * 2

    return f, (leaf(3), leaf(3)), {}


@program(effect)
def effects_in_forward_and_backward() -> Made:
    def f(x: Tensor) -> Tensor:
        noted(x.detach(), 3)
        y = differentiated(InBackward.apply(x, 1))
        noted(y.detach(), 5)
        return y * drawn(y.detach(), 1)

    return f, (leaf(3),), {}


@program(effect)
def effect_in_a_module_with_a_parameter() -> Made:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return differentiated(self.inner(drawn(x, 1)))

    return Layer(), (numbers(2, 3),), {}


@program(effect)
def effect_behind_a_write() -> Made:
    """It reads what was written before it, and not what is written after it."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        y = drawn(x, 1)
        x.mul_(2)
        return y * w

    return f, (numbers(3), leaf(3)), {}


@program(effect)
def effect_in_a_backward_of_which_one_result_is_used() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y, _ = InBackward.apply(x, 1), InBackward.apply(w, 2)
        return y * w

    return f, (leaf(3), leaf(3)), {}


@program(effect, modes=("train",))
def effect_in_a_checkpoint() -> Made:
    """It runs again in backward, as eager's does."""

    def region(x: Tensor) -> Tensor:
        return differentiated(x.sin()).cos()

    return lambda x: checkpoint(region, x, use_reentrant=False, preserve_rng_state=False), (leaf(3),), {}


def twice_backward(f: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = f(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    return first, torch.autograd.grad(y.sum(), x)[0]


@program(effect, modes=("train",), scenario=twice_backward)
def effect_in_a_backward_that_runs_twice() -> Made:
    return lambda x: InBackward.apply(x, 1).cos(), (leaf(3),), {}


def never_backward(f: Any, x: Tensor) -> Tensor:
    f(x)
    return f(x).detach()


@program(effect, scenario=never_backward)
def effect_in_a_backward_that_never_runs() -> Made:
    return lambda x: differentiated(x.sin()).cos(), (leaf(3),), {}
