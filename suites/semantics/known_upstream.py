"""Programs of kinds on which torch 2.13's own compilers were seen to go wrong or to differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

known = "known-upstream"


@program(known)
def base_mutated_and_a_view_of_an_offset_input_returned() -> Made:
    def f(base: Tensor, view: Tensor) -> Tensor:
        base.mul_(2)
        return view.view(2, 2)

    base = numbers(8)
    return f, (base, base[3:7]), {}


@program(known)
def base_mutated_and_a_view_of_an_offset_inner_input_returned() -> Made:
    def f(base: Tensor, view: Tensor) -> Tensor:
        base.mul_(2)
        return view.view(2, 2)

    base = inner(8)
    return f, (base, base[3:7]), {}


@program(known)
def offset_input_mutated_and_a_view_of_the_base_returned() -> Made:
    def f(base: Tensor, view: Tensor) -> Tensor:
        view.mul_(2)
        return base[2:5]

    base = numbers(8)
    return f, (base, base[3:7]), {}


def _apart_then_over(f: Callable[..., Any], base: Tensor) -> Any:
    other = base.clone()
    return f(base[:4], other[:4]), f(base[:4], base[2:6]), base, other


@program(known, scenario=_apart_then_over)
def separate_inputs_then_overlapping_ones() -> Made:
    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    return f, (numbers(8),), {}


@program(known, scenario=_apart_then_over)
def separate_inputs_then_overlapping_ones_both_written() -> Made:
    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        b.mul_(2)
        return a + b

    return f, (numbers(8),), {}


def _resized_by_the_caller(f: Callable[..., Any], x: Tensor) -> Any:
    base, view = f(x)
    base.resize_(2)
    base.add_(1)
    return base, view


@program(known, modes=("infer",), scenario=_resized_by_the_caller)
def base_and_its_no_op_view_returned_then_resized_by_the_caller() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y.view(4)

    return f, (numbers(4),), {}


@program(known)
def as_strided_copy_after_an_addition_through_another_view() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * 2
        y[1:].add_(w)
        return torch.as_strided_copy(y, (3, 2), (1, 2), 1)

    return f, (numbers(8), leaf(7)), {}


@program(known)
def as_strided_copy_of_an_input_after_an_addition_through_another_view() -> Made:
    def f(x: Tensor) -> Tensor:
        x.view(2, 4).t().add_(1)
        return torch.as_strided_copy(x, (3, 2), (1, 2), 1)

    return f, (numbers(8),), {}


@program(known)
def index_put_then_a_flipped_read() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x.clone()
        y.index_put_((torch.tensor([0, 3, 0]),), w)
        return y + y.flip(0)

    return f, (numbers(6), leaf(1)), {}


@program(known)
def index_put_from_a_flipped_read_of_the_same_tensor() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * 2
        y.index_put_((torch.tensor([0, 1, 2]),), y.flip(0)[:3])
        return y.flip(0) * w

    return f, (numbers(6), leaf(6)), {}


@program(known)
def slice_scatter_of_an_input_that_is_then_zeroed() -> Made:
    def f(x: Tensor, part: Tensor, w: Tensor) -> Tensor:
        y = torch.slice_scatter(x, part, 0, 1, 3)
        x.zero_()
        return y * w

    return f, (numbers(6), numbers(2), leaf(6)), {}


@program(known)
def slice_scatter_of_an_inner_input_that_is_then_zeroed() -> Made:
    def f(x: Tensor, part: Tensor) -> Tensor:
        y = torch.slice_scatter(x, part, 0, 1, 3)
        x.zero_()
        return y + x

    return f, (inner(6), leaf(2)), {}


@program(known)
def input_shifted_within_itself_through_a_clone() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[1:].copy_(x[:-1].clone())
        return x * w

    return f, (numbers(9), leaf(9)), {}


@program(known)
def intermediate_shifted_within_itself_through_a_clone() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x + 1
        y[2:].copy_(y[:-2].clone())
        y[:-1].copy_(y[1:].clone())
        return y * w

    return f, (numbers(9), leaf(9)), {}


@program(known)
def expanded_tangent_meets_a_scatter() -> Made:
    def f(w: Tensor) -> Tensor:
        return w[torch.tensor([0, 0, 2])].sum(0).expand(4, 3).sum()

    return f, (leaf(3, 3),), {}


def _expanded_cotangent(f: Callable[..., Any], w: Tensor) -> Any:
    return torch.autograd.grad(f(w), w, torch.ones(()).expand(3, 4))[0]


@program(known, modes=("train",), scenario=_expanded_cotangent)
def expanded_cotangent_meets_a_select_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        y = w.clone()
        y[1] = w[0] * 2
        return y

    return f, (leaf(3, 4),), {}


@program(known, modes=("train",), scenario=_expanded_cotangent)
def expanded_cotangent_meets_a_gather_backward() -> Made:
    def f(w: Tensor) -> Tensor:
        return w.gather(0, torch.zeros(3, 4, dtype=torch.int64))

    return f, (leaf(3, 4),), {}


@program(known, "raises", modes=("train",))
def view_saved_for_backward_whose_base_is_changed_is_an_error() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x[1:] * w
        x.add_(1)
        return y

    return f, (numbers(4), leaf(3)), {}


def _base_written_before_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
    y = f(x[1:], w)
    x.add_(1)
    return y


@program(known, "raises", modes=("train",), scenario=_base_written_before_backward)
def view_saved_for_backward_whose_base_the_caller_changes_is_an_error() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    return f, (numbers(4), leaf(3)), {}


def _backward_of_the_used(f: Callable[..., Any], used: Tensor, unused: Tensor) -> Any:
    output, _ = f(used, unused)
    return torch.autograd.grad(output.sum(), (used, unused), allow_unused=True)


@program(known, modes=("train",), scenario=_backward_of_the_used)
def gradient_of_an_input_that_the_used_output_does_not_reach() -> Made:
    def f(used: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
        return used * 2, used * unused

    return f, (leaf(3), leaf(3)), {}


@program(known)
def clamp_keeps_negative_zero() -> Made:
    def f(x: Tensor) -> Tensor:
        return 1 / x.clamp(min=0)

    return f, (torch.full((8,), -0.0),), {}


@program(known)
def zeros_keep_their_signs() -> Made:
    """Where a sign is 0 - x, and where a zero that is written down has none, these are infinities of the other sign."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return 1 / -x, 1 / torch.where(x > 1, x, -0.0), 1 / (x + -0.0)

    return f, (torch.tensor([0.0, -0.0, 1.0, -2.0, 0.0, -0.0, 3.0]),), {}


def _changed_before_backward(f: Callable[..., Any], *inputs: Tensor) -> Any:
    """The first output, which eager's formulas do not read, is written by the user; then backward runs."""
    seen, loss = f(*inputs)
    with torch.no_grad():
        seen.mul_(3)
    loss.backward()
    return seen, loss, [x.grad for x in inputs if x.is_leaf and x.requires_grad]


@program(known, modes=("train",), scenario=_changed_before_backward)
def logits_changed_by_the_caller_between_loss_and_backward() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = x @ w
        return logits, nn.functional.cross_entropy(logits, torch.arange(4))

    return f, (numbers(4, 6), leaf(6, 5)), {}


@program(known, modes=("train",))
def stack_of_a_part_of_what_is_written_through_a_view() -> Made:
    """What is returned is read from a list of parts of a value that a library computes."""

    def f(b: Tensor, c: Tensor) -> Tensor:
        b.add_(1)
        return torch.stack([c, b.unbind(0)[4]], 0)

    b = torch.arange(7.0, requires_grad=True).clone().view(7, 1)
    return f, (b, b[0]), {}


@program(known, modes=("train",), scenario=_changed_before_backward)
def half_logits_changed_by_the_caller_between_loss_and_backward() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = x @ w
        return logits, nn.functional.cross_entropy(logits.float(), torch.arange(4) * 16)

    return f, (numbers(4, 6).bfloat16(), torch.randn(6, 64).bfloat16().requires_grad_()), {}


@program(known, modes=("train",), scenario=_changed_before_backward)
def hidden_value_changed_by_the_caller_before_backward() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = x * 2
        return hidden, (hidden.exp() + 1).sin().sum()

    return f, (leaf(6),), {}


@program(known, modes=("train",), scenario=_changed_before_backward)
def view_of_a_hidden_value_changed_by_the_caller_before_backward() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = x * 2
        return hidden.view(2, 3)[1], (hidden.exp() + 1).sin().sum()

    return f, (leaf(6),), {}


def _input_changed_before_backward(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    given = x * 1
    loss = f(given, w)
    with torch.no_grad():
        given.mul_(3)
        w.mul_(2)
    loss.backward()
    return loss, x.grad, w.grad


@program(known, modes=("train",), scenario=_input_changed_before_backward)
def inputs_that_no_formula_reads_changed_by_the_caller_before_backward() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return ((x + w).exp() + 1).sin().sum()

    return f, (leaf(6), leaf(6)), {}


@program(known, modes=("train",))
def input_detached_after_its_view_is_written() -> Made:
    """In eager the view's history begins anew at what was detached, and the leaf behind it gets no gradient."""

    def f(x: Tensor) -> Tensor:
        view = x.view(1, -1)
        view.reshape(-1).exp_()
        x.detach_()
        return view

    return f, (leaf(3).clone(),), {}


@program(known, modes=("infer",))
def one_hot_of_a_transposed_index() -> Made:
    """In rows, however the index lies."""
    return lambda x: torch.nn.functional.one_hot(x, 7), (torch.arange(20).view(4, 5).t() % 7,), {}
