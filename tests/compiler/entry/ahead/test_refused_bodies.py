"""Branches and steps that torch refuses ahead of time: those that write or alias an operand or another result.

Each program is refused with the class that torch's own `aot_function` raises, and never run in eager in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import aot_function as torchs_aot_function
from functorch.compile import nop
from torch import Tensor
from torch._higher_order_ops.map import map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from assay.compiler.entry.aot import aot_function


def chosen(first: Callable[[Tensor], object], second: Callable[[Tensor], object] = lambda y: y * 3) -> Any:
    return lambda x: torch.cond(x.sum() > 0, first, second, (x,))


def scanned(step: Callable[..., Any]) -> Any:
    return lambda x: scan(step, x[0] * 0, x)


def mapped(step: Callable[..., Any]) -> Any:
    return lambda x: map(step, x)


def looped(step: Callable[..., object], goes_on: Callable[..., object] = lambda i, y: i < 3) -> Any:
    return lambda x: while_loop(goes_on, step, (torch.zeros((), dtype=torch.int64), x))


def after(write: Tensor, result: Any) -> Any:
    """The result, computed behind a write."""
    return result


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


def with_view(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x.view(2, 2)


def two(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 3, x * 2


REFUSED = {
    "branch writes": chosen(lambda y: after(y.add_(1), y * 2)),
    "branch gives its operand": chosen(lambda y: y),
    "branches give views": chosen(lambda y: y.view(-1), lambda y: (y * 3).view(-1)),
    "branch gives one twice": chosen(lambda y: twice(y * 2), two),
    "branch gives a view of another": chosen(lambda y: with_view(y[0] * 2), lambda y: with_view(y[0] * 3)),
    "branches give other counts": chosen(lambda y: (y * 1,), two),
    "branch writes what it closes over": lambda x: torch.cond(
        x.sum() > 0, lambda y: after(x.add_(1), y * 2), lambda y: y * 3, (x,)
    ),
    "scan writes a row": scanned(lambda c, r: after(r.add_(1), (c + r, r * 2))),
    "scan writes what is carried": scanned(lambda c, r: after(c.add_(1), (c + r, r * 2))),
    "scan gives what is carried": scanned(lambda c, r: (c, r * 2)),
    "scan gives a row": scanned(lambda c, r: (c + r, r)),
    "scan gives one twice": scanned(lambda c, r: twice(c + r)),
    "scan gives a view of another": scanned(lambda c, r: with_view(c + r)),
    "map writes": mapped(lambda r: after(r.add_(1), r * 2)),
    "map gives its row": mapped(lambda r: r),
    "map gives a view": mapped(lambda r: r.view(2, 2)),
    "map gives a view of another": mapped(lambda r: with_view(r * 2)),
    "loop writes": looped(lambda i, y: (i + 1, y.add_(1))),
    "loop gives what it is given": looped(lambda i, y: (i + 1, y)),
    "loop gives a view": lambda x: looped(lambda i, y: (i + 1, y.t()))(x[:, :3]),
    "condition writes": looped(lambda i, y: (i + 1, y * 2), lambda i, y: after(y.add_(1), i < 3)),
    "loop grows": looped(lambda i, y: (i + 1, torch.cat([y, y]))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_torch_refuses_ahead_of_time_is_refused_with_its_class(name: str) -> None:
    found = []
    for make in (torchs_aot_function, aot_function):
        torch._dynamo.reset()
        x = torch.arange(12.0).view(3, 4).requires_grad_()
        with pytest.raises(Exception) as raised:  # the class is what is asked for
            make(REFUSED[name], nop)(x * 1)
        found.append(raised.type)
    assert found[0] is found[1]
