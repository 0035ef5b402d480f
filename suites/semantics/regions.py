"""Programs with regions of `torch.compiler.nested_compile_region`, each one graph however often it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import nested_compile_region
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

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


@nested_compile_region
def mixed(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w) + x


@nested_compile_region
def exponential(x: Tensor, w: Tensor) -> Tensor:
    return torch.exp(x + 1) * w


@nested_compile_region
def counted(x: Tensor, count: Tensor) -> Tensor:
    count.add_(1)
    return x * count


def three_times(x: Tensor, w: Tensor) -> Tensor:
    return mixed(mixed(mixed(x, w), w).sin(), w).cos()


@program(region)
def region_used_three_times_with_work_between() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_with_work_before_and_after() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        z = mixed(mixed(y, w), w)
        return z * y, y.sum()

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_given_another_layout_at_one_place() -> Made:
    return lambda x, w: mixed(mixed(x, w), w) + mixed(x.t(), w), (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_given_another_dtype_at_one_place() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return mixed(mixed(x, w), w), mixed(mixed(x.double(), w.double()), w.double())

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_given_what_requires_no_gradient_at_one_place() -> Made:
    def f(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return mixed(mixed(x, w), w) + mixed(x, v) + mixed(x.detach(), v)

    return f, (leaf(3, 3), leaf(3, 3), numbers(3, 3)), {}


@program(region)
def region_given_a_tensor_twice() -> Made:
    """Of two places, one with a tensor twice and one with two tensors, Dynamo makes one graph of one input."""
    return lambda x, w: mixed(x, x) + mixed(w, w), (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_without_gradients_at_one_place() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = mixed(mixed(x, w), w)
        with torch.no_grad():
            z = mixed(y, w)
        return y * z, z

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_under_autocast() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mixed(mixed(x, w), w)
        return y.float() * x

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_with_a_result_that_nobody_reads() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y, _ = several(x, w)
        _, total = several(y, w)
        return total

    return f, (leaf(3, 3), leaf(3)), {}


@program(region, modes=("infer",))
def region_that_writes_a_buffer() -> Made:
    """In training torch refuses it."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return counted(counted(x, self.count), self.count) + self.count

    return Counting(), (numbers(2, 3),), {}


@program(region)
def region_whose_input_is_written_after_it() -> Made:
    """Backward of an exponential reads its result, so that its argument may change."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        y = exponential(x, w)
        z = exponential(y, w)
        y.mul_(2)
        return y + z

    return f, (leaf(3), leaf(3)), {}


def _of_several_sizes(f: Callable[..., Any], *args: Tensor) -> Any:
    return [f(*(arg[:size] for arg in args)) for size in (6, 4, 5)]


@program(region, scenario=_of_several_sizes)
def region_called_with_one_size_twice() -> Made:
    """Dynamo gives the second call the size of both arguments by one name."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return exponential(exponential(x, w), w)

    return f, (leaf(6), leaf(6)), {}


@program(region, "raises", modes=("train",))
def region_whose_result_is_written_where_backward_reads_it() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = mixed(x, w)
        z = mixed(y, w)
        y.zero_()
        return y + z

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_whose_result_is_returned_and_its_view() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = mixed(x, w)
        z = mixed(y.t(), w)
        return y, y[0], z

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_after_an_input_is_written() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        return mixed(mixed(x, w), w) + x

    return f, (inner(3, 3), leaf(3, 3)), {}


@program(region)
def regions_of_one_module_inside_another_region() -> Made:
    return lambda x, w: twice_dropped(twice_dropped(x, w), w), (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def region_in_two_checkpoints() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(2):
            x = checkpoint(lambda x: dropped(x.cos(), w), x, use_reentrant=False)
        return x

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(region)
def checkpoint_in_a_region() -> Made:
    @nested_compile_region
    def kept(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda x: F.dropout(x.sin() * w), x, use_reentrant=False)  # type: ignore[no-any-return]

    return lambda x, w: kept(kept(x, w), w), (leaf(3, 3), leaf(3)), {}


@program(region, modes=("infer",))
def region_given_an_integer_and_a_float() -> Made:
    @nested_compile_region
    def scaled(x: Tensor, factor: float, power: int) -> Tensor:
        return torch.tanh(x * factor) ** power

    return lambda x, factor, power: scaled(scaled(x, factor, power), factor, power), (leaf(3), 0.5, 3), {}


@program(region, modes=("infer",))
def region_of_batch_norm_in_evaluation() -> Made:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.BatchNorm1d(3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = normed(layer, x)
            return x

    return Normed().eval(), (leaf(2, 3),), {}


@nested_compile_region
def normed(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x).relu() + x  # type: ignore[no-any-return]


def _backward_twice(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x, w).sum()
    y.backward(retain_graph=True)
    y.backward()
    return y.detach()


@program(region, modes=("train",), scenario=_backward_twice)
def region_with_backward_twice() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}


def _second_gradients(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    slopes = torch.autograd.grad(f(x, w).square().sum(), (x, w), create_graph=True)
    return torch.autograd.grad(slopes[0].sum() + slopes[1].square().sum(), (x, w))


@program(region, modes=("train",), scenario=_second_gradients)
def region_with_second_gradients() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}


def _two_forwards_then_backwards(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    first, second = f(x, w), f(x.detach() * 2, w)
    first.sum().backward()
    second.square().sum().backward()
    return x.grad, w.grad


@program(region, modes=("train",), scenario=_two_forwards_then_backwards)
def region_with_two_forwards_before_their_backwards() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}


def _gradients_one_by_one(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    first, second = f(x, w)
    by_first = torch.autograd.grad(first.sum(), (x, w), retain_graph=True, allow_unused=True)
    return by_first, torch.autograd.grad(second.sum(), (x, w), allow_unused=True)


@program(region, modes=("train",), scenario=_gradients_one_by_one)
def region_with_gradients_of_one_result_after_the_other() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y, first = several(x, w)
        z, second = several(y.sin(), w)
        return z, first * second

    return f, (leaf(3, 3), leaf(3)), {}


def _packed(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    sizes: list[int] = []

    def pack(value: Tensor) -> Tensor:
        sizes.append(value.dim())
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        y = f(x, w)
    y.sum().backward()
    return y.detach()


@program(region, modes=("train",), scenario=_packed)
def region_under_hooks_on_saved_tensors() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}


def _in_inference_mode(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    with torch.inference_mode():
        y = f(x, w)
    return y.is_inference(), f(x.detach(), w.detach())


@program(region, modes=("infer",), scenario=_in_inference_mode)
def region_in_inference_mode() -> Made:
    return three_times, (leaf(3, 3), leaf(3, 3)), {}
