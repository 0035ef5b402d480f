"""Programs with regions of `torch.compiler.nested_compile_region`, each one graph however often it is called."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.compiler import nested_compile_region
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

region = "region"


@nested_compile_region
def dropped(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(torch.sin(x @ w), 0.5)


@nested_compile_region
def several(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x * w, (x + w).sum(0)


@nested_compile_region
def twice_dropped(x: Tensor, w: Tensor) -> Tensor:
    return dropped(dropped(x, w), w)


@program(region)
def region_used_once() -> Made:
    return lambda x, w: several(x, w)[0], (numbers(3, 3), leaf(3)), {}


@program(region)
def region_that_draws_used_twice() -> Made:
    return lambda x, w: dropped(dropped(x, w), w), (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_with_several_results_used_twice() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y, first = several(x, w)
        z, second = several(y, w)
        return z, first * second

    return f, (numbers(3, 3), leaf(3)), {}


@program(region)
def region_inside_a_region() -> Made:
    return lambda x, w: twice_dropped(x, w) + dropped(x, w), (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_in_a_checkpoint() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda x: dropped(x.cos(), w), x, use_reentrant=False)  # type: ignore[no-any-return]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region, modes=("train",))
def checkpoint_in_a_checkpoint() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            return F.dropout(x.sin() * w)

        def outer(x: Tensor) -> Tensor:
            return checkpoint(inner, x.cos(), use_reentrant=False) * x  # type: ignore[no-any-return]

        return checkpoint(outer, x, use_reentrant=False)  # type: ignore[no-any-return]

    return f, (leaf(3, 3), leaf(3)), {}


@program(region)
def region_of_a_program_that_is_given_back() -> Made:
    """An input is given other memory, so eager runs it all, with its gradients."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        y = dropped(dropped(x, w), w)
        x.data = torch.zeros(3, 3, device=x.device)
        return y

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_of_a_module_with_layers_alike() -> Made:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = dropped(x, layer.weight) + layer.bias
            return x

    return Layers(), (numbers(2, 3),), {}
