"""Functions that grow, by about how many nodes their joint graphs have: `assay bench partition`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.bench.compile_time.partitioning import Growing, Made

SIDE, WIDTH, TOKENS = 16, 32, 16


def _leaf(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def chain(nodes: int) -> Made:
    """Pointwise operators one after the other, each with a number of its own; all of them read the input, too."""
    steps = nodes // 7
    functions = (torch.sin, torch.tanh, torch.sigmoid, torch.cos)

    def function(x: Tensor) -> Tensor:
        value = x
        for step in range(steps):
            value = functions[step % 4](value * (1.0 + step / steps) + x)
        return value

    return function, (_leaf(SIDE, SIDE),)


def transformer(nodes: int) -> Made:
    """Layers of attention, written out, and of two products, each behind a norm and beside a residual connection."""
    layers = max(1, nodes // 79)

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        for layer in range(layers):
            project, out, up, down = weights[4 * layer : 4 * layer + 4]
            q, k, v = (F.layer_norm(x, (WIDTH,)) @ project).chunk(3, -1)
            x = x + torch.softmax(q @ k.transpose(-1, -2) * WIDTH**-0.5, -1) @ v @ out
            x = x + F.gelu(F.layer_norm(x, (WIDTH,)) @ up) @ down
        return x

    shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    return function, (_leaf(2, TOKENS, WIDTH), *(_leaf(*shape) for _ in range(layers) for shape in shapes))


def residual(nodes: int) -> Made:
    """As many branches of one value as there is room for, each gated by the sum of those before it.

    So values have many readers, and the graph is one network that falls into no parts."""
    branches = nodes // 14

    def function(x: Tensor, w: Tensor) -> Tensor:
        total = x
        for branch in range(branches):
            total = total + torch.tanh(x * (1 + branch / branches)).exp() * torch.sigmoid(total)
        return total @ w

    return function, (_leaf(SIDE, SIDE), _leaf(SIDE, SIDE))


SIZES = (500, 1000, 2000, 5000, 10000, 20000)
PROGRAMS = (
    Growing("chain", chain, SIZES),
    Growing("transformer", transformer, SIZES),
    Growing("residual", residual, SIZES),
)
