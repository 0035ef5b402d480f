"""Views that autograd refuses to look at, as arguments of pieces: their base was written after they were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler import journal


def views_read(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """The cut is behind the write, so that a piece takes a refused view."""
    b.mul_(0.5)
    z = b.new_zeros(1).expand(3)
    z.zero_()
    return a.view(-1)[1:].sin() + z.sum(), a.t(), (a.exp() * 2).sum()


def conjugates_read(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """A refused view that is lazily conjugated, and one that is lazily negated."""
    lazy = torch.view_as_complex(a.view(3, 2)).conj()
    negative = lazy.imag
    b.mul_(0.5)
    z = b.new_zeros(1).expand(3)
    z.zero_()
    return (lazy * 1j).real + z.sum(), negative[1:], negative + 1


def views_written(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    found = views_read(a, b)
    a.add_(1)
    return found


def _called(run: Callable[..., Any], made_with_gradients: bool) -> list[Any]:
    with torch.enable_grad():
        base = torch.linspace(0, 1, 8, requires_grad=True).clone()
    with torch.set_grad_enabled(made_with_gradients):
        a, b = base[:6].view(2, 3), base[4:]
    found = run(a, b)
    found[1].add_(10)
    return [*found, a, b, base._version, *map(_is_refused, (*found, a, b))]


def _is_refused(value: Tensor) -> bool:
    try:
        return bool(value.grad_fn is value)
    except RuntimeError:
        return True


@pytest.mark.parametrize("made_with_gradients", (True, False))
@pytest.mark.parametrize("f", (views_read, conjugates_read, views_written))
def test_a_piece_of_refused_views_is_eagers_without_gradients(f: Callable[..., Any], made_with_gradients: bool) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    with torch.no_grad():
        for _ in range(3):
            found, expected = _called(compiled, made_with_gradients), _called(f, made_with_gradients)
            for mine, theirs in zip(found, expected, strict=True):
                assert torch.equal(mine, theirs) if isinstance(mine, Tensor) else mine == theirs
    counted = journal.totals()
    assert counted["eager_graphs"] == 0 and counted["cuts"] > 0
    is_refused = any("refuses to say" in reason for reason in counted["eager"])
    assert is_refused == (f is views_written and not made_with_gradients), counted["eager"]
