"""Programs that draw random numbers: eager's numbers, in eager's order, and eager's state after the call."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

random = "random"


@program(random)
def draws_keep_their_order() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = torch.rand(3, device=w.device)
        second = torch.randn(3, device=w.device)
        return second * w, first * x, torch.rand(3, device=w.device)

    return f, (numbers(3), leaf(3)), {}


@program(random)
def draw_that_nothing_uses_still_counts() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        torch.rand(5, device=w.device)
        return torch.rand(3, device=w.device) * w + x

    return f, (numbers(3), leaf(3)), {}


@program(random)
def draw_between_two_uses_of_a_value_that_another_draw_reads() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """One kernel of the sigmoid and the product would need the second draw, and the first draw that kernel."""
        chance = torch.sigmoid(x @ w)
        first = torch.bernoulli(chance.detach())
        return chance * torch.rand_like(x), first

    return f, (numbers(4, 4), leaf(4, 4)), {}


@program(random)
def equal_draws_stay_two() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.rand(3, device=w.device) * w, torch.rand(3, device=w.device) * w

    return f, (leaf(3),), {}


@program(random)
def draws_of_every_kind() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.bernoulli(x.sigmoid()),
            torch.randint(0, 9, (4,)),
            torch.randperm(5),
            torch.multinomial(x.softmax(-1), 2),
            torch.normal(x, 1.0),
            torch.randint_like(x, 5),
            torch.empty(3).exponential_(),
        )

    return f, (numbers(6),), {}


@program(random)
def draws_in_place() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.uniform_()
        y = x.clone().bernoulli_(0.5)
        x.normal_(1.0, 2.0)
        return (x + y) * w

    return f, (numbers(6), leaf(6)), {}


@program(random)
def dropout() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(x * w, 0.5) + torch.rand_like(x)

    return f, (numbers(64), leaf(64)), {}


@program(random)
def dropout_of_everything_and_of_nothing() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(x * w, 1.0) + functional.dropout(w, 0.0) * torch.rand_like(x)

    return f, (numbers(8), leaf(8)), {}


@program(random)
def dropout_twice_with_a_draw_between() -> Made:
    def f(w: Tensor) -> Tensor:
        y = functional.dropout(w, 0.3)
        y = y + torch.randn(64, device=w.device)
        return functional.dropout(y.sin(), 0.7)

    return f, (leaf(64),), {}


@program(random)
def draw_saved_for_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return (w * torch.rand_like(w)).sin() * torch.randn(8, device=w.device)

    return f, (leaf(8),), {}


class Noisy(torch.autograd.Function):
    """Draws in forward, and again in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * torch.rand(3, device=x.device)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0] * torch.rand(3, device=given[0].device)


@program(random)
def draws_in_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return Noisy.apply(w)

    return f, (leaf(3),), {}


@program(random)
def checkpointed_dropout_is_replayed() -> Made:
    def region(w: Tensor) -> Tensor:
        return functional.dropout(w.sin(), 0.5).exp()

    def f(w: Tensor) -> Tensor:
        return checkpoint(region, w, use_reentrant=False) + torch.rand(64, device=w.device)

    return f, (leaf(64),), {}


@program(random)
def generator_passed_as_an_argument() -> Made:
    def f(w: Tensor, generator: torch.Generator) -> Tensor:
        return w * torch.rand(3, generator=generator)

    return f, (leaf(3), torch.Generator().manual_seed(3)), {}


@program(random)
def generator_in_a_closure() -> Made:
    generator = torch.Generator().manual_seed(5)

    def f(w: Tensor) -> Tensor:
        return w * torch.rand(3, generator=generator)

    return f, (leaf(3),), {}


@program(random)
def generator_passed_to_an_in_place_draw() -> Made:
    def f(x: Tensor, w: Tensor, generator: torch.Generator) -> Tensor:
        x.normal_(generator=generator)
        return x * w + torch.rand(3)

    return f, (numbers(3), leaf(3), torch.Generator().manual_seed(3)), {}


@program(random)
def default_generator_passed() -> Made:
    def f(w: Tensor, generator: torch.Generator) -> Tensor:
        return w * torch.rand(3, generator=generator) + torch.rand(3)

    return f, (leaf(3), torch.default_generator), {}


@program(random)
def seed_set_inside() -> Made:
    def f(w: Tensor) -> Tensor:
        torch.manual_seed(7)
        return w * torch.rand(3, device=w.device)

    return f, (leaf(3),), {}


@program(random)
def state_forked_inside() -> Made:
    def f(w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng(devices=[]):
            y = w * torch.rand(3, device=w.device)
        return y, torch.rand(3, device=w.device)

    return f, (leaf(3),), {}


def _seeded_twice(f: Callable[..., Any], w: Tensor) -> Any:
    torch.manual_seed(11)
    one = f(w)
    torch.manual_seed(11)
    return one, f(w), torch.rand(2, device=w.device)


@program(random, scenario=_seeded_twice)
def equal_seeds_give_equal_draws() -> Made:
    def f(w: Tensor) -> Tensor:
        return functional.dropout(w, 0.5) * torch.rand(8, device=w.device)

    return f, (leaf(8),), {}


@program(random)
def generator_made_inside() -> Made:
    def f(w: Tensor) -> Tensor:
        return w * torch.rand(3, generator=torch.Generator().manual_seed(3))

    return f, (leaf(3),), {}


@program(random)
def dropout_of_nothing() -> Made:
    """Whatever its share, it is the very tensor that it is given, and nothing is drawn."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return *(functional.dropout(x, share) for share in (0.0, 0.5, 1.0)), w * torch.rand_like(w)

    return f, (numbers(2, 0), leaf(3)), {}


@program(random, modes=("train",))
def dropout_of_elements_used_twice() -> Made:
    def f(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5)

    return f, (inner(12).as_strided((2, 4), (2, 2), 1),), {}


@program(random)
def floats_that_python_draws() -> Made:
    """Each is a number beside tensors of any dtype, with or without dimensions, and it has all its digits."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        draws = Random(3)
        number, least, most = draws.random(), draws.uniform(-1, 1), draws.gauss(0, 1)
        of_dtypes = [y * number for y in (x, x.double(), x.half(), x.int())]
        of_one = [y * least for y in (x.sum(), x.half().sum(), x.int().sum())]
        return *of_dtypes, *of_one, torch.tensor(most), torch.tensor([number, 1.0]), w.sin() * number + w**most

    return f, (numbers(3), leaf(3).abs()), {}


@program(random, modes=("infer",))
def greater_of_floats_that_python_draws() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        draws = Random(3)
        return (
            x * max(draws.random(), 0.5),
            x.sum() * min(draws.random(), draws.random()),
            x.add(x, alpha=draws.random()),
        )

    return f, (numbers(3),), {}
