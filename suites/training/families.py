"""Training loops of other families of models: recurrent, generative, reinforced, self-taught, sparse and physical."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.training.loops import (
    STEPS,
    Losses,
    data_of,
    loop,
    optimizers_in_hooks,
    perceptron,
    scattered,
    stepped,
    trained,
)


class Recurrent(nn.Module):
    """Words, one after the other, through a gated cell with a norm; the scores come from the words' own vectors."""

    def __init__(self, words: int = 13, width: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.given, self.kept = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.width = width

    def forward(self, text: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen = []
        for position in range(text.shape[1]):
            reset, update, new = self.given(self.words(text[:, position])).chunk(3, -1)
            reset_by, update_by, new_by = self.kept(state).chunk(3, -1)
            update = torch.sigmoid(update + update_by)
            made = torch.tanh(new + torch.sigmoid(reset + reset_by) * new_by)
            state = self.norm(update * state + (1 - update) * made)
            if position == 1:
                torch._dynamo.graph_break()
            seen.append(state)
        return torch.stack(seen, 1) @ self.words.weight.t(), state


def _in_pieces_of_time(model: Any, *_: Any) -> Any:
    """The state goes on from step to step without its history, and texts are of several lengths."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses: Losses = []
    norms = []
    state = torch.zeros(3, 8)
    for step in range(STEPS):
        text = (torch.arange(4 + step % 3) * (step % 4 + 1) + torch.arange(3)[:, None]) % 13
        scores, state = model(text, state)
        state = state.detach()
        loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), text[:, 1:].flatten(), ignore_index=0)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        losses.append(loss.detach())
    return losses, norms, trained(model)


@loop(_in_pieces_of_time)
def recurrent_cell_in_pieces_of_time() -> Made:
    return Recurrent(), (), {}


class Autoencoder(nn.Module):
    """A picture to a distribution, and a draw of it to a picture."""

    def __init__(self) -> None:
        super().__init__()
        inner = nn.Conv2d(1, 4, 3, 2, 1), nn.SiLU(), nn.GroupNorm(2, 4)
        self.coded = nn.Sequential(*inner, nn.Flatten(), nn.Linear(64, 6))
        self.drawn = nn.Sequential(nn.Linear(3, 64), nn.Unflatten(1, (4, 4, 4)), nn.ConvTranspose2d(4, 1, 4, 2, 1))

    def forward(self, picture: Tensor, weight: float, noise: Tensor) -> Tensor:
        mean, log_variance = self.coded(picture).chunk(2, 1)
        drawn = self.drawn(mean + (0.5 * log_variance).exp() * noise)
        apart = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(drawn, picture) + weight * apart


def _warming_up(model: Any, *_: Any) -> Any:
    """The weight of one term is a float that grows from step to step; one batch is smaller."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses: Losses = []
    for step in range(STEPS):
        count = 3 if step == 7 else 5
        picture = scattered(count, 64, step).square().view(count, 1, 8, 8)
        stepped(optimizer, model(picture, min(1.0, step / 10), scattered(count, 3, step + 1)), losses)
    return losses, trained(model)


@loop(_warming_up)
def variational_autoencoder_with_a_growing_weight() -> Made:
    return Autoencoder(), (), {}


class Actor(nn.Module):
    """What is seen to the scores of actions and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron(4, 8, 8)
        self.scores, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.body(seen)
        return self.scores(inner), self.value(inner).squeeze(-1)


def _near_the_old_policy(model: Any, *_: Any) -> Any:
    """Ratios to an earlier policy are clamped; rows are taken by index, a rest at the end of each round."""
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    losses: Losses = []
    for step in range(STEPS // 4):
        count = (9, 13)[step % 2]
        seen, gained = scattered(count, 4, step), scattered(count, 2, step + 3)
        actions = torch.arange(count) * 2 % 3
        with torch.no_grad():
            before = torch.distributions.Categorical(logits=model(seen)[0]).log_prob(actions)
        for rows in (torch.arange(count) * 5 % count).split(6):
            scores, value = model(seen[rows])
            policy = torch.distributions.Categorical(logits=scores)
            ratio, gain = (policy.log_prob(actions[rows]) - before[rows]).exp(), gained[rows, 0]
            gain = -torch.min(ratio * gain, ratio.clamp(0.9, 1.1) * gain).mean()
            loss = gain + 0.5 * F.smooth_l1_loss(value, gained[rows, 1]) - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.2)
            optimizer.step()
            losses.append(loss.detach())
    return losses, trained(model)


@loop(_near_the_old_policy)
def policy_held_near_the_old_one() -> Made:
    return Actor(), (), {}


def _teaching_itself(coder: Any, *_: Any) -> Any:
    """Two views of a batch, each made like what a teacher makes of the other. A hook halves one gradient and notes it,
    another is retained; the teacher follows with its buffers."""
    inner = getattr(coder, "_orig_mod", coder)
    teacher = copy.deepcopy(inner).requires_grad_(False)
    guess = perceptron(4, 8, 4)
    optimizer = torch.optim.SGD(
        [*coder.parameters(), *guess.parameters()], 0.005, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    losses: Losses = []
    noted: list[Tensor] = []

    def halved(gradient: Tensor) -> Tensor:
        noted.append(gradient.norm().detach())
        return gradient * 0.5

    for step in range(STEPS):
        views = scattered(7, 6, step), scattered(7, 6, step).flip(0) * 0.9
        coded = [coder(view) for view in views]
        coded[0].retain_grad()
        handle = coded[1].register_hook(halved)
        with torch.no_grad():
            taught = [teacher(view) for view in views]
        alike = [F.cosine_similarity(guess(coded[k]), taught[1 - k]).mean() for k in (0, 1)]
        stepped(optimizer, 2 - alike[0] - alike[1], losses)
        noted.append(coded[0].grad.clone())
        handle.remove()
        torch._foreach_lerp_(data_of(teacher), data_of(coder), 0.1)
        with torch.no_grad():
            for kept, new in zip(teacher.buffers(), inner.buffers(), strict=True):
                kept.copy_(new)
    return losses, noted, trained(coder), trained(guess)


@loop(_teaching_itself)
def coder_whose_teacher_is_its_mean() -> Made:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 4)), (), {}


class Denoiser(nn.Module):
    """Layers of attention that a moment of time scales and moves, computed again in backward."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Timed(width) for _ in range(layers))
        self.out = nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        waves = time[:, None] * torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        when = torch.cat([waves.cos(), waves.sin()], -1)
        for layer in self.layers:
            x = checkpoint(layer, x, when, use_reentrant=False)
        made: Tensor = self.out(x)
        return made


class Timed(nn.Module):
    """One of its layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.moved = nn.RMSNorm(width), nn.Linear(8, 2 * width)
        self.heads, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        scale, move = self.moved(when)[:, None].chunk(2, -1)
        query, key, value = self.heads(self.norm(x) * (1 + scale) + move).chunk(3, -1)
        made: Tensor = x + self.mix(F.scaled_dot_product_attention(query, key, value))
        return made


def _removing_noise(model: Any, *_: Any) -> Any:
    """Optimizers step in hooks while layers are computed again for their gradients."""
    losses: Losses = []
    with optimizers_in_hooks(model, lambda parameter: torch.optim.Adam([parameter], 1e-3)):
        for count in range(STEPS):
            clean, noise = (scattered(2, 40, count + k).view(2, 5, 8) for k in (0, 5))
            time = scattered(1, 2, count)[0].square()
            share = time[:, None, None]
            loss = F.mse_loss(model(clean * (1 - share) + noise * share, time), noise)
            loss.backward()
            losses.append(loss.detach())
    return losses, trained(model)


@loop(_removing_noise)
def denoiser_of_checkpoints_with_optimizers_in_hooks() -> Made:
    return Denoiser(), (), {}


def _at_the_worst_point_near(model: Any, *_: Any) -> Any:
    """The gradient is that of a point uphill: parameters are written between two backwards, and back."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses: Losses = []
    for step in range(STEPS):
        x, labels = scattered(8, 18, step).view(8, 2, 9), torch.arange(8) * (step + 1) % 5
        for is_uphill in (False, True):
            loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.detach())
            if not is_uphill:
                gradients = [parameter.grad for parameter in model.parameters()]
                norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
                uphill = [gradient * (0.02 / (norm + 1e-12)) for gradient in gradients]
                torch._foreach_add_(data_of(model), uphill)
        torch._foreach_sub_(data_of(model), uphill)
        optimizer.step()
    return losses, trained(model)


@loop(_at_the_worst_point_near)
def convolutions_held_to_the_worst_point_near() -> Made:
    layers = nn.Conv1d(2, 6, 3, padding=1), nn.BatchNorm1d(6), nn.SiLU(), nn.AdaptiveAvgPool1d(3)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, 5)), (), {}


class Experts(nn.Module):
    """Each word goes to the two of four layers that a router chooses; rows of its vectors have sparse gradients."""

    def __init__(self, words: int = 11, width: int = 6, experts: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, sparse=True)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(perceptron(width, 8, width) for _ in range(experts))

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(text).flatten(0, 1)
        share = self.router(x).softmax(-1)
        weights, chosen = share.topk(2, -1)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            if rows.numel():
                made = made.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        load = F.one_hot(chosen[:, 0], 4).to(x.dtype).mean(0)
        return made.sum(-1).view(text.shape), 4 * (load * share.mean(0)).sum()


def _routed(model: Any, *_: Any) -> Any:
    """Two optimizers, one of them for sparse gradients; how many rows an expert has changes at each step."""
    dense = [p for name, p in model.named_parameters() if "words" not in name]
    sparse = [p for name, p in model.named_parameters() if "words" in name]
    optimizers = torch.optim.AdamW(dense, 0.01), torch.optim.SparseAdam(sparse, 0.01)
    losses: Losses = []
    for step in range(STEPS):
        text = (torch.arange(4 + step % 3) * (step % 4 + 1) + torch.arange(2)[:, None]) % 11
        made, balance = model(text)
        loss = (made - text / 10).square().mean() + 0.01 * balance
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, trained(model)


@loop(_routed)
def experts_of_words_with_sparse_gradients() -> Made:
    return Experts(), (), {}


def _obeying_an_equation(model: Any, *_: Any) -> Any:
    """A loss of second derivatives, whose optimizer asks for it several times in a step."""
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)
    losses: Losses = []

    def asked(x: Tensor) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            optimizer.zero_grad()
            height = model(x)
            (slope,) = torch.autograd.grad(height.sum(), x, create_graph=True)
            (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
            off = slope[:, 1] - 0.1 * bend[:, 0] + height[:, 0] * slope[:, 0]
            made = off.square().mean() + (height[:3] - 1).square().mean()
            made.backward()
            losses.append(made.detach())
            return made

        return loss

    slopes = []
    for step in range(STEPS // 4):
        x = scattered(7, 2, step).square().requires_grad_()
        optimizer.step(asked(x))
        slopes.append(x.grad)
    return losses, slopes, trained(model)


@loop(_obeying_an_equation)
def network_that_obeys_an_equation() -> Made:
    return perceptron(2, 8, 8, 1), (), {}
