"""Elements that a mask chooses: read, written, and summed up, where only the data tells how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

masks = "masks"


def _with_sizes_of_the_data(f: Callable[..., Any], *args: Tensor) -> Any:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        return f(*args)


def _chosen_by(*counts: int) -> Callable[..., Any]:
    """Calls with so many elements of the last argument above zero, one after the other."""

    def scenario(f: Callable[..., Any], *args: Tensor) -> list[Any]:
        *others, scores = args
        found = list[Any]()
        for count in counts:
            signs = torch.where(torch.arange(scores.numel(), device=scores.device) < count, 1.0, -1.0)
            found.append(_with_sizes_of_the_data(f, *others, scores.abs() * signs.view_as(scores)))
        return found

    return scenario


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_elements_written_by_their_own() -> Made:
    """The backward looks the chosen elements up again, in a number that is known by then."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        z, chosen = x * 2, y > 0
        z[chosen] = y[chosen].sin()
        return z.cos()

    return f, (leaf(4, 3), leaf(4, 3)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_elements_scaled_in_place() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        z = x.clone()
        z[y > 0] *= 3
        return z.sin()

    return f, (leaf(4, 3), numbers(4, 3)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_rows_written_by_one() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z[(y > 0)[:, 0]] = y[0] * 2
        return z.cos()

    return f, (leaf(4, 3), leaf(4, 3)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_elements_written_by_a_number() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z[y > 0] = float("-inf")
        z[y < -1] = 2
        return z.exp()

    return f, (leaf(4, 3), numbers(4, 3)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_elements_written_by_a_scalar() -> Made:
    def f(x: Tensor, s: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z[y > 0] = s
        return z.sin()

    return f, (leaf(4, 3), leaf(), numbers(4, 3)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_elements_normalised_in_their_places() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        z, chosen = x.clone(), y > 0
        z[chosen] = x[chosen].softmax(0)
        return z * 2

    return f, (leaf(4, 3), numbers(4, 3)), {}


@program(masks, scenario=_chosen_by(5, 2, 1))
def spread_of_chosen_elements() -> Made:
    """Of one element there is none, and its gradient is NaN, as eager's division by zero has it."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        v = x[y > 0]
        return v.var(), v.std(), torch.var(v, unbiased=False), torch.var_mean(v)[0]

    return f, (leaf(6), numbers(6)), {}


@program(masks, scenario=_chosen_by(5, 2, 1))
def spread_of_chosen_elements_along_their_dimension() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        v = x[y > 0]
        return v.var(0), v.std(0, keepdim=True)

    return f, (leaf(6), numbers(6)), {}


@program(masks, scenario=_chosen_by(5, 2, 1, 0))
def running_sums_of_chosen_elements() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        v = x[y > 0]
        return v.cumsum(0).sin(), v.logcumsumexp(0), torch.cumsum(v, dim=0, dtype=torch.float64)

    return f, (leaf(6), numbers(6)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def products_of_chosen_rows_with_themselves() -> Made:
    """Whether a matrix of so many rows overlaps itself when it is transposed, its strides tell."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        v = x[y[:, 0] > 0]
        scores = (v @ v.t()).softmax(1)
        return scores @ v, torch.einsum("ij,kj->ik", v, v).sum(), v.t().contiguous() * 2, v.repeat(2, 1)

    return f, (leaf(6, 4), numbers(6, 1)), {}


@program(masks, scenario=_with_sizes_of_the_data)
def chosen_rows_flipped_and_normalised() -> Made:
    """The number of rows is in the index of what a reduction reads."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        v = x[y[:, 0] > 0]
        return v.flip(0).softmax(0), v.t().contiguous().softmax(0)

    return f, (leaf(6, 4), numbers(6, 1)), {}


def _with_other_masks(f: Callable[..., Any], x: Tensor, mask: Tensor) -> list[Any]:
    """Calls with masks that choose as many rows."""
    return [f(x, each) for each in (mask, mask.flip(0), mask.roll(1))]


def _with_a_mask_of_fewer(f: Callable[..., Any], x: Tensor, mask: Tensor) -> Any:
    """A call, then one with a mask that chooses fewer rows than there are, which is an error."""
    f(x, mask)
    return f(x, mask & (torch.arange(len(mask), device=mask.device) > 0))


def _spread(x: Tensor, mask: Tensor) -> Tensor:
    rows = x.new_zeros(mask.shape[0], x.shape[1])
    rows[mask] = x * 2
    return rows.sin()


def _three_of_five() -> Tensor:
    return torch.tensor([True, True, False, False, True])


@program(masks, scenario=_with_other_masks)
def rows_spread_by_a_mask() -> Made:
    """Backward looks up what the mask chooses, though Dynamo was not asked for sizes of the data."""
    return _spread, (leaf(3, 4), _three_of_five()), {}


@program(masks, scenario=_with_a_mask_of_fewer)
def rows_spread_by_a_mask_of_fewer() -> Made:
    return _spread, (leaf(3, 4), _three_of_five()), {}


@program(masks)
def rows_spread_by_a_constant_mask() -> Made:
    mask = _three_of_five()
    return lambda x: _spread(x, mask.to(x.device)), (leaf(3, 4),), {}
