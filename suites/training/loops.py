"""Training loops, each a scenario over a model: it trains for twenty steps, and gives the losses and what was trained.

Our own backends run them with whole backwards compiled, as `assay,own_backward` does.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from assay.harness.case import Case, Made, case

STEPS = 20
Losses = list[Tensor]


def loop(scenario: Callable[..., Any]) -> Callable[[Callable[[], Made]], Case]:
    """Declares a loop over the model that the function makes."""
    return case(modes=("train",), tags=("whole-backward", "training"), scenario=scenario)


class Block(nn.Module):
    """A layer of a small GPT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.heads, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(self.norms[0](x)).chunk(3, -1)
        x = x + self.mix(F.scaled_dot_product_attention(query, key, value, is_causal=True))
        made: Tensor = x + self.wide(self.norms[1](x))
        return made


class Gpt(nn.Module):
    """Words to the scores of the next ones."""

    def __init__(self, words: int = 17, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.scores = nn.Linear(width, words, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text) / 4
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.scores(x)
        return made


def _texts(count: int = STEPS) -> Iterator[Tensor]:
    """Batches of text: each word follows from the one before."""
    for step in range(count):
        yield (torch.arange(9) * (step % 3 + 1) + torch.arange(4)[:, None]) % 17


def _next_words(model: Callable[[Tensor], Tensor], text: Tensor) -> Tensor:
    return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def trained(module: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def _accumulating(model: Any, *_: Any) -> Any:
    """Two micro-batches a step, clipped gradients, a schedule, and a running mean of the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    mean, losses = trained(model), []
    for text in _texts():
        for part in text.chunk(2):
            loss = _next_words(model, part) / 2
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(mean, trained(model), 0.1)
    return losses, mean


@loop(_accumulating)
def gpt_with_accumulation_clipping_schedule_and_mean() -> Made:
    return Gpt(), (), {}


@contextmanager
def optimizers_in_hooks(model: Any, make: Callable[[Tensor], torch.optim.Optimizer]) -> Iterator[None]:
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there."""
    optimizers = {parameter: make(parameter) for parameter in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    handles = [parameter.register_post_accumulate_grad_hook(step) for parameter in optimizers]
    yield
    for handle in handles:
        handle.remove()


def _in_hooks(model: Any, *_: Any) -> Any:
    losses = []
    with optimizers_in_hooks(model, lambda parameter: torch.optim.SGD([parameter], lr=0.05)):
        for text in _texts():
            loss = _next_words(model, text)
            loss.backward()
            losses.append(loss.detach())
    return losses, trained(model), [parameter.grad for parameter in model.parameters()]


@loop(_in_hooks)
def gpt_with_an_optimizer_in_hooks() -> Made:
    return Gpt(), (), {}


def _offloading(model: Any, *_: Any) -> Any:
    """Saved tensors of many elements are packed as arrays of the host."""

    def pack(tensor: Tensor) -> Any:
        return tensor.detach().cpu().numpy().copy() if tensor.numel() > 256 and not tensor.is_leaf else tensor

    def unpack(packed: Any) -> Tensor:
        return packed if isinstance(packed, Tensor) else torch.from_numpy(packed)

    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for text in _texts():
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = _next_words(model, text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, trained(model)


@loop(_offloading)
def gpt_that_offloads_what_it_saves() -> Made:
    return Gpt(), (), {}


class Adapted(nn.Module):
    """A frozen layer beside a product of two thin matrices, which alone are trained."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / 4)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x) + x @ self.down.t() @ self.up.t()
        return made


def _adapting(model: Any, *_: Any) -> Any:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
    losses = []
    for text in _texts():
        loss = _next_words(model, text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, trained(model), [parameter.grad is None for parameter in model.parameters()]


@loop(_adapting)
def low_rank_adapters_of_a_frozen_gpt() -> Made:
    model = Gpt().requires_grad_(False)
    for block in model.blocks:
        assert isinstance(block, Block)
        block.heads, block.mix = Adapted(block.heads), Adapted(block.mix)  # type: ignore[assignment]
    return model, (), {}


def perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def scattered(rows: int, columns: int, step: int) -> Tensor:
    """Numbers that are the same in each dtype, and others at each step."""
    return (torch.arange(rows * columns).view(rows, columns) * (step + 1.7)).sin()


def _against_each_other(critic: Any, *_: Any) -> Any:
    """A generator and a critic, whose gradient is held to length one: a gradient of a gradient."""
    generator = perceptron(3, 8, 2)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (critic, generator)]
    losses: Losses = []
    for step in range(STEPS):
        noise, real = scattered(6, 3, step), scattered(6, 2, step) + 1
        fake = generator(noise).detach()
        between = (real * 0.3 + fake * 0.7).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        loss = F.softplus(critic(fake)).mean() + F.softplus(-critic(real)).mean() + penalty
        stepped(optimizers[0], loss, losses)
        stepped(optimizers[1], F.softplus(-critic(generator(noise))).mean(), losses)
    return losses, trained(critic), trained(generator)


def stepped(optimizer: torch.optim.Optimizer, loss: Tensor, losses: Losses) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())


@loop(_against_each_other)
def generator_and_critic_with_a_gradient_penalty() -> Made:
    return perceptron(2, 8, 1), (), {}


def _learning_to_learn(model: Any, *_: Any) -> Any:
    """Two inner steps, through which the outer one goes back."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses: Losses = []
    x = torch.linspace(-1, 1, 8)[:, None]
    for count in range(STEPS):
        y = (x * (count % 4 + 1)).sin()
        weights: dict[str, Any] = dict(model.named_parameters())
        for _inner in range(2):
            inner = (functional_call(model, weights, (x,)) - y).square().mean()
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {name: weights[name] - 0.1 * slope for name, slope in zip(weights, slopes, strict=True)}
        stepped(optimizer, (functional_call(model, weights, (x,)) - y).square().mean(), losses)
    return losses, trained(model)


@loop(_learning_to_learn)
def learning_to_learn_curves() -> Made:
    return perceptron(1, 8, 1), (), {}


def _with_a_teacher(model: Any, *_: Any) -> Any:
    """A copy of the model that learns nothing and follows slowly."""
    teacher = copy.deepcopy(getattr(model, "_orig_mod", model)).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses: Losses = []
    for text in _texts():
        target = teacher(text).softmax(-1)
        loss = F.cross_entropy(model(text).flatten(0, 1), target.flatten(0, 1)) + _next_words(model, text)
        stepped(optimizer, loss, losses)
        torch._foreach_lerp_(data_of(teacher), data_of(model), 0.2)
    return losses, trained(model)


def data_of(module: Any) -> list[Tensor]:
    return [parameter.data for parameter in module.parameters()]


@loop(_with_a_teacher)
def gpt_that_follows_its_own_mean() -> Made:
    return Gpt(), (), {}
