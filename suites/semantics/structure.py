"""Programs whose results have structure, and programs under ambient modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, program


@program("structure")
def dict_with_none() -> Made:
    def f(x: Tensor, *, w: Tensor) -> dict[str, object]:
        return {"y": x * w, "cache": None, "sizes": (x.shape[0], "three"), "nested": [{"z": (x + w).sum()}]}

    return f, (torch.randn(3),), {"w": leaf(3)}


@program("ambient")
def autocast_inside() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y, y.float().softmax(-1)

    return f, (torch.randn(4, 8), leaf(8, 8)), {}


@program("structure")
def calls_that_differ_in_a_keyword_alone() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        down, cut = torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")
        wide, narrow = x.sum(dtype=torch.float64), x.sum()
        return down * 2, cut * 3, wide * 2, narrow * 3, torch.add(x, y, alpha=2) * 2, torch.add(x, y, alpha=3) * 2

    return f, (torch.tensor([-3.0, 7.0, -7.5]), torch.tensor([2.0, -2.0, 2.0])), {}


@program("ambient")
def no_grad_inside() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            scale = (w * w).mean()
            seen = w.view(-1)
        return x * w * scale, scale, seen

    return f, (torch.randn(3, 2), leaf(3, 2)), {}


@program("gradient")
def leaf_without_gradient() -> Made:
    def f(x: Tensor, used: Tensor, unused: Tensor) -> Tensor:
        return x * used + unused.detach()

    return f, (torch.randn(3), leaf(3), leaf(3)), {}


class Losses(NamedTuple):
    """A result of which only the loss is differentiated."""

    loss: Tensor
    other: Tensor
    both: Tensor


@program("gradient")
def leaf_behind_an_output_that_is_not_differentiated() -> Made:
    def f(x: Tensor, used: Tensor, unused: Tensor) -> Losses:
        return Losses((x * used).sum(), x * unused, used * unused)

    return f, (torch.randn(3), leaf(3), leaf(3)), {}


@program("gradient")
def output_that_needs_no_gradient() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * w, x * 2, (w > 0)

    return f, (torch.randn(3), leaf(3)), {}


@program("argument")
def float_that_changes_from_call_to_call() -> Made:
    def f(x: Tensor, scale: float) -> Tensor:
        return x * scale + torch.sin(x) / scale

    return f, (leaf(3), 1.5), {}


@program("argument")
def module_with_float_attributes() -> Made:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).eval()
    return module, (torch.randn(2, 2, 5, 5),), {}


@program("values", modes=("infer",))
def halves_that_are_compared_as_they_are_rounded() -> Made:
    """Nothing is less than itself, and what overflows in halves is infinite, though kernels compute in float32."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return torch.lt(torch.stack([y, y]), y), (y * 60000).isinf(), (x * 1e-8).sign(), (x * 3 + 2000).argmax()

    return f, (torch.randn(64).half(),), {}


@program("structure")
def integer_that_is_known_to_be_negative() -> Made:
    def f(x: Tensor, n: int) -> Tensor:
        return x * n + n if n < 0 else x - n

    return f, (leaf(3), -3), {}


@program("structure")
def sums_over_dimensions_whose_sizes_nothing_else_tells() -> Made:
    def f(x: Tensor) -> Tensor:
        return (x * 2).sum((1, 2))

    return f, (leaf(2, 3, 4),), {}


def _in_several_dtypes(f: Callable[..., Any], x: Tensor, w: Tensor) -> list[Tensor]:
    return [f(x.to(dtype), w.to(dtype)) for dtype in (torch.float32, torch.float64, torch.bfloat16)]


@program("structure", scenario=_in_several_dtypes)
def one_callable_in_several_dtypes() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x * 2).sin() + w

    return f, (torch.randn(3, 4), leaf(4)), {}
