"""Tensors of symbolic sizes that lie apart: what is shown against every byte, and the guards that it leaves."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from assay.compiler.ir.tensors.layout.lie_apart import lie_apart
from tests.compiler.ir.tensors.layout.test_overlap import footprint, views

Parts = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

APART: dict[str, Parts] = {
    "columns": lambda v: (v[:, :, 1], v[:, :, 0]),
    "rows": lambda v: (v[0], v[1]),
    "a column in two rows": lambda v: (v[1, :, 1], v[0, :, 1]),
    "halves of a row": lambda v: (v[..., :2], v[..., 2:]),
    "even and odd columns": lambda v: (v[..., ::2], v[..., 1::2]),
}
OVER: dict[str, Parts] = {
    "the whole and a column": lambda v: (v, v[:, :, 0]),
    "a row and a column": lambda v: (v[0], v[:, 0]),
    "shifted columns": lambda v: (v[..., 1:], v[..., :-1]),
}


def symbolic(*shape: int) -> tuple[torch.Tensor, ShapeEnv]:
    """A fake tensor of which every size is a symbol."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(shape))
    return mode.from_tensor(torch.empty(shape), symbolic_context=context), environment


@given(views(), views())
def test_what_is_shown_to_lie_apart_has_no_byte_in_common(one: torch.Tensor, other: torch.Tensor) -> None:
    if lie_apart(one, other):
        assert not footprint(one) & footprint(other)


@pytest.mark.parametrize("name", APART)
def test_parts_of_symbolic_sizes_are_shown_to_lie_apart(name: str) -> None:
    value, _ = symbolic(2, 3, 4)
    assert lie_apart(*APART[name](value))


@pytest.mark.parametrize("name", OVER)
def test_parts_that_overlap_leave_no_guard(name: str) -> None:
    value, environment = symbolic(2, 3, 4)
    parts = OVER[name](value)
    before = list(environment.guards)
    assert not lie_apart(*parts)
    assert environment.guards == before


@pytest.mark.parametrize("name", APART)
def test_parts_lie_apart_wherever_the_guards_hold(name: str) -> None:
    value, environment = symbolic(2, 3, 4)
    assert lie_apart(*APART[name](value))
    symbols = [size.node.expr for size in value.shape if isinstance(size, torch.SymInt)]
    held = 0
    for sizes in itertools.product(range(2, 6), repeat=3):
        facts = [guard.expr.xreplace(dict(zip(symbols, sizes, strict=True))) for guard in environment.guards]
        if all(facts):
            held += 1
            one, other = APART[name](torch.empty(sizes))
            assert not footprint(one) & footprint(other), sizes
    assert held
