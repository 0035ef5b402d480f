"""Programs whose inputs share memory, written, read, returned and differentiated: called again with other overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Case, Made
from assay.suites.semantics.program import inner, leaf, numbers, program

overlap = "input-overlap"

PAIRS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "same_tensor": lambda base: (base[:4], base[:4]),
    "disjoint_views": lambda base: (base[:4], base[4:]),
    "partly_overlapping_views": lambda base: (base[:4], base[2:6]),
    "interleaved_views": lambda base: (base[::2], base[1::2]),
    "view_and_its_base": lambda base: (base[2:6], base),
    "base_and_its_view": lambda base: (base, base[2:6]),
    "transposed_views": lambda base: (base[:4].view(2, 2), base[:4].view(2, 2).t()),
    "view_and_an_expanded_view": lambda base: (base[:4].view(2, 2), base[1:2].expand(2, 2)),
    "views_with_an_offset": lambda base: (base[3:7], base[1:5]),
}
"""Two tensors over a base of 8 numbers."""


def _mutated_and_read(a: Tensor, b: Tensor, w: Tensor) -> Any:
    a.mul_(2)
    return b.sin().sum() * w


def _mutated_and_returned(a: Tensor, b: Tensor, w: Tensor) -> Any:
    a.add_(1)
    return a, b, w * 2


def _both_mutated(a: Tensor, b: Tensor, w: Tensor) -> Any:
    a.add_(1)
    b.mul_(2)
    return (a.sum() + b.sum()) * w


def _read_and_returned(a: Tensor, b: Tensor, w: Tensor) -> Any:
    return a * 2, b[1:], a[0], w * b.sum()


def _read_and_the_other_mutated(a: Tensor, b: Tensor, w: Tensor) -> Any:
    before = a.sum()
    b.mul_(2)
    return before + a.sin().sum() * w


USES = {
    "one_mutated_the_other_read": _mutated_and_read,
    "one_mutated_both_returned": _mutated_and_returned,
    "both_mutated": _both_mutated,
    "views_returned": _read_and_returned,
    "one_read_the_other_mutated": _read_and_the_other_mutated,
}


REFUSED = [("view_and_an_expanded_view", use) for use in ("both_mutated", "one_read_the_other_mutated")]
"""Eager writes no tensor that overlaps itself."""


def _pair(of: Callable[[Tensor], tuple[Tensor, Tensor]], same: bool, base: Tensor) -> tuple[Tensor, Tensor]:
    a, b = of(base)
    return (a, a) if same else (a, b)


def _overlapping(pair: str, use: str, made: Callable[..., Tensor], suffix: str) -> Case:
    def make() -> Made:
        return USES[use], (*_pair(PAIRS[pair], pair == "same_tensor", made(8)), leaf(2)), {}

    make.__name__ = f"{pair}_{use}{suffix}"
    tags = ("raises",) if (pair, use) in REFUSED else ()
    return program(overlap, *tags)(make)


CASES = [_overlapping(pair, use, numbers, "") for pair in PAIRS for use in USES]
CASES += [_overlapping(pair, "one_mutated_the_other_read", inner, "_with_gradient") for pair in PAIRS]
CASES += [_overlapping(pair, "views_returned", inner, "_with_gradient") for pair in PAIRS]


@program(overlap)
def same_tensor_passed_twice() -> Made:
    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return a * w + b

    x = numbers(3)
    return f, (x, x, leaf(3)), {}


@program(overlap)
def refusal_where_inputs_overlap_and_one_is_written() -> Made:
    """Compiled again for the overlap, an operator that torch takes apart in Python still asks eager's kernel."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        torch.nn.functional.one_hot(torch.tensor([-7, 0]), 4)
        b[1:] = -7
        return a[-7:]

    x = numbers(4, 5)
    return f, (x, x.mT), {}


@program(overlap)
def same_leaf_passed_twice() -> Made:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return a * b.sin()

    w = leaf(3)
    return f, (w, w), {}


@program(overlap)
def same_leaf_passed_twice_and_returned() -> Made:
    def f(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return a, b, a[1:], b * 2

    w = leaf(3)
    return f, (w, w), {}


@program(overlap)
def same_tensor_in_nested_containers() -> Made:
    def f(inputs: dict[str, Any], w: Tensor) -> Tensor:
        inputs["a"].add_(1)
        return inputs["b"][0] * w

    x = numbers(3)
    return f, ({"a": x, "b": [x]}, leaf(3)), {}


@program(overlap)
def leaf_and_its_detached_view() -> Made:
    def f(w: Tensor, detached: Tensor) -> Tensor:
        detached.mul_(2)
        return w + 1

    w = leaf(3)
    return f, (w, w.detach()), {}


@program(overlap)
def leaf_and_its_view() -> Made:
    def f(w: Tensor, view: Tensor) -> Tensor:
        return w.sum() * view.sin()

    w = leaf(4)
    return f, (w, w[1:]), {}


@program(overlap)
def differentiable_and_not_over_one_storage() -> Made:
    def f(x: Tensor, detached: Tensor) -> tuple[Tensor, Tensor]:
        detached[1:].mul_(2)
        return x + 1, detached[0]

    x = inner(4)
    return f, (x, x.detach()), {}


@program(overlap)
def tensors_over_one_storage_with_two_dtypes() -> Made:
    def f(x: Tensor, bits: Tensor, w: Tensor) -> Tensor:
        bits.zero_()
        return x * w

    x = numbers(4)
    return f, (x, x.view(torch.int32), leaf(4)), {}


@program(overlap)
def three_views_one_mutated() -> Made:
    def f(a: Tensor, b: Tensor, c: Tensor, w: Tensor) -> Tensor:
        b.add_(1)
        return (a + c) * w

    base = numbers(8)
    return f, (base[:4], base[2:6], base[4:], leaf(4)), {}


@program(overlap)
def chain_of_writes_through_overlapping_views() -> Made:
    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        a.add_(1)
        b.mul_(a.clone())
        a.sub_(b.clone())
        return (a + b) * w

    base = numbers(8)
    return f, (base[:4], base[2:6], leaf(4)), {}


@program(overlap, "raises")
def write_from_a_partly_overlapping_view_is_refused() -> Made:
    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        b.mul_(a)
        return (a + b) * w

    base = numbers(8)
    return f, (base[:4], base[2:6], leaf(4)), {}


class TiedTwice(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x).relu())


@program(overlap)
def parameters_tied() -> Made:
    return TiedTwice(), (numbers(3, 4),), {}


@program(overlap)
def parameter_passed_as_an_input_too() -> Made:
    model = nn.Linear(4, 4)

    def f(weight: Tensor, x: Tensor) -> Tensor:
        return model(x) @ weight

    return f, (model.weight, numbers(3, 4)), {}


class Averaged(nn.Module):
    """A buffer over the memory of a parameter."""

    shadow: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("shadow", self.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        self.shadow.mul_(0.5)
        return x + self.weight


@program(overlap)
def buffer_over_the_memory_of_a_parameter() -> Made:
    return Averaged(), (numbers(2, 3),), {}


@program(overlap)
def parameters_are_views_of_one_flat_tensor() -> Made:
    model = nn.Linear(3, 2)
    flat = torch.randn(8)
    model.weight.data, model.bias.data = flat[:6].view(2, 3), flat[6:]

    def f(x: Tensor, flat: Tensor) -> Tensor:
        flat.mul_(0.5)
        return model(x).detach()

    return f, (numbers(4, 3), flat), {}


changes = "overlap-changes"


def _apart_then_over(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    """The first call with inputs apart, the next with overlapping ones, then one tensor, then apart again."""
    pairs = [(base[:4], base[4:]), (base[:4], base[2:6]), (base[:4], base[:4]), (base[4:], base[:4])]
    return [f(a, b, w) for a, b in pairs], base


def _storages_apart_then_shared(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    other = base.clone()
    return [f(base[:4], other[2:6], w), f(base[:4], base[2:6], w), f(base[:4], other[2:6], w)], base, other


def _many_overlaps(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    """More overlaps than a compiler may wish to specialise for."""
    return [f(base[i : i + 2], base[j : j + 2], w) for i in range(0, 7, 2) for j in range(7)], base


def _over_then_apart(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    other = base.clone()
    return [f(base[:4], base[2:6], w), f(base[:4], other[:4], w)], base, other


def _transposed_later(f: Callable[..., Any], base: Tensor, w: Tensor) -> Any:
    one, other = base[:4].view(2, 2), base[4:].view(2, 2)
    return [f(one, other, w), f(one, one.t(), w), f(one, one, w)], base


ORDERS = {
    "separate_storages_then_overlapping": _storages_apart_then_shared,
    "disjoint_views_then_overlapping": _apart_then_over,
    "overlapping_then_separate": _over_then_apart,
    "many_overlaps_in_turn": _many_overlaps,
    "separate_then_transposed_over_itself": _transposed_later,
}


def _mutate_and_read(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    a.add_(1)
    return (b * 2).sum() * w


def _view_and_copy(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return b[1:], a * w.sum()


def _in_order(order: str, use: Callable[..., Any], suffix: str, made: Callable[..., Tensor]) -> Case:
    def make() -> Made:
        return use, (made(8), leaf(2)), {}

    make.__name__ = f"{order}{suffix}"
    return program(overlap, changes, scenario=ORDERS[order])(make)


CASES += [_in_order(order, _mutate_and_read, "", numbers) for order in ORDERS]
CASES += [_in_order(order, _mutate_and_read, "_with_gradient", inner) for order in ORDERS]
CASES += [_in_order(order, _view_and_copy, "_and_only_read", numbers) for order in ORDERS]


def _backward_of_the_first_call(f: Callable[..., Any], base: Tensor) -> Any:
    y = f(base[:0], base[:0])
    f(base[:0], y)
    return torch.autograd.grad(y.sum(), base)


@program(overlap, "raises", modes=("train",), scenario=_backward_of_the_first_call)
def empty_views_of_one_base_written_by_two_calls_is_an_error() -> Made:
    def f(a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            a.mul_(2)
        return a * b

    return f, (leaf(2, 4),), {}


@program(overlap)
def data_of_a_written_input_returned() -> Made:
    """What `.data` gives has a version of its own, which later writes of it show."""

    def f(x: Tensor, alias: Tensor) -> tuple[Tensor, ...]:
        y = x * x
        alias[1:].mul_(2)
        return y, alias.data, alias.detach()

    base = numbers(6)
    return f, (base, base.detach()[1:5]), {}


def _lie_alike() -> tuple[Tensor, Tensor]:
    given = numbers(6)
    return given, given.detach()


@program(overlap)
def view_of_an_input_that_another_one_which_lies_alike_was_written_through() -> Made:
    """The view is one of the first input, though both are views of one memory, alike."""

    def f(a: Tensor, b: Tensor) -> Tensor:
        b.add_(1)
        return a[1:]

    return f, _lie_alike(), {}


@program(overlap)
def view_of_an_input_that_is_written_beside_one_which_lies_alike() -> Made:
    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        b.add_(1)
        return b[1:], a[:2]

    return f, _lie_alike(), {}
