"""Constants are computed when compiling if that pays, and nobody can see it: returned, written, drawn, or kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.compiler import journal
from assay.compiler.ir.graph.roles import Program
from assay.compiler.passes.eliminate_dead_code import eliminate_dead_code
from assay.compiler.passes.fold_constants import MOST_BYTES, fold_constants
from tests.lowering import traced

X = torch.randn(6, 16, generator=torch.Generator().manual_seed(2))


def angles(count: int) -> Tensor:
    """A table as rotary embeddings and positions of attention have it."""
    return torch.outer(torch.arange(count).float(), 10000 ** (-torch.arange(0, 8, 2).float() / 8))


def table(x: Tensor) -> tuple[Tensor, ...]:
    return (x + torch.cat([angles(6).sin(), angles(6).cos()], 1).repeat(1, 2),)


def literal(x: Tensor) -> tuple[Tensor, ...]:
    return (x + torch.tensor([3.0, 1.0, 2.0, 0.5]).cumsum(0).repeat(4),)


def window(x: Tensor) -> tuple[Tensor, ...]:
    return (x * torch.hann_window(16),)


def sorted_places(x: Tensor) -> tuple[Tensor, ...]:
    return (x[torch.tensor([2, 0, 5, 1]).sort()[0]] * 2,)


def cheap(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.where(torch.arange(16)[None] <= torch.arange(6)[:, None], x, -1e9),)


def drawn(x: Tensor) -> tuple[Tensor, ...]:
    return (x + torch.rand(16).cumsum(0),)


def unfilled(x: Tensor) -> tuple[Tensor, ...]:
    return (x + torch.empty(16).fill_(2.0).cumsum(0),)


def large(x: Tensor) -> tuple[Tensor, ...]:
    return (x.sum() + torch.arange(MOST_BYTES).float().cumsum(0).sin(),)


def of_an_input(x: Tensor) -> tuple[Tensor, ...]:
    return (x + torch.ones_like(x).cumsum(0) + torch.arange(16).cumsum(0),)


FOLDED = {"table": (table, 1), "literal": (literal, 1), "window": (window, 1), "sorted_places": (sorted_places, 1)}
KEPT: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {"cheap": cheap, "drawn": drawn, "large": large}


def count_folded(program: Program) -> int:
    folded = fold_constants(program)
    program.module.graph.lint()
    program.module.recompile()
    return folded


@pytest.mark.parametrize("name", FOLDED)
def test_constants_are_folded_and_the_program_is_the_same(name: str) -> None:
    function, count = FOLDED[name]
    program = traced(function, X)
    eliminate_dead_code(program)
    before = len(program.module.graph.nodes)
    assert count_folded(program) == count, program.module.print_readable(print_output=False)
    assert len(program.module.graph.nodes) <= before
    for found, expected in zip(program.module(X), function(X), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_cheap_or_random_or_large_stays(name: str) -> None:
    assert count_folded(traced(KEPT[name], X)) == 0


def test_only_what_no_input_reaches_is_folded() -> None:
    program = traced(of_an_input, X)
    assert count_folded(program) == 1
    assert any(node.target is torch.ops.aten.cumsum.default for node in program.module.graph.nodes)


def test_a_call_that_raises_is_left_to_raise() -> None:
    def function(x: Tensor) -> Tensor:
        return x + torch.arange(4).float().take(torch.tensor([9])).cumsum(0)

    compiled = torch.compile(function, backend="assay")
    with pytest.raises(IndexError):
        function(X)
    with pytest.raises(IndexError):
        compiled(X)


def returned(x: Tensor) -> tuple[Tensor, ...]:
    made = angles(6).sin()
    return x + 1, made, made[1:]


def written(x: Tensor) -> tuple[Tensor, ...]:
    made = angles(6).sin()
    made[0].add_(x[0, :4])
    x.copy_(angles(6).cos().repeat(1, 4))
    return (made,)


def shared(results: tuple[Tensor, ...]) -> list[bool]:
    places = [result.untyped_storage().data_ptr() for result in results]
    return [one == other for one in places for other in places]


@pytest.mark.parametrize("function", [returned, written], ids=lambda function: function.__name__)
@pytest.mark.parametrize("backward", [False, True])
def test_mutation_between_calls_is_not_seen(function: Callable[..., tuple[Tensor, ...]], backward: bool) -> None:
    compiled = torch.compile(function, backend="assay", options={"fallback": "error"})
    for _ in range(3):
        mine, theirs = (X.clone().requires_grad_(backward) + 0 for _ in range(2))
        ours, eager = compiled(mine), function(theirs)
        for one, other in zip((*ours, mine), (*eager, theirs), strict=True):
            assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
            torch.testing.assert_close(one, other)
        assert shared(ours) == shared(eager)
        with torch.no_grad():
            for one in ours:
                one.fill_(77.0)


def test_gradients_through_constants_are_eagers() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * angles(6).sin().repeat(1, 4)).tanh() @ angles(16).cos()

    x = torch.randn(6, 16, requires_grad=True)
    (mine,) = torch.autograd.grad(torch.compile(function, backend="assay")(x).sum(), x)
    (theirs,) = torch.autograd.grad(function(x).sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_folded_constants_survive_a_warm_start(tmp_path: Path) -> None:
    options = {"cache": str(tmp_path), "warm": True, "fallback": "error"}

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return returned(x) + table(x)

    expected, before = program(X), journal.totals()["restored"]
    for starts in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(program, backend="assay", options=options)
        for _ in range(2):
            found = compiled(X)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
            for one in found:
                one.zero_()
        assert journal.totals()["restored"] - before == starts


@pytest.mark.parametrize("function", [torch.sgn, lambda x: torch.sgn(x) + x * 2, lambda x: torch.sgn(x) * x.exp()])
def test_zeros_without_memory_are_zeros(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The gradient of a sign is a tensor that has no memory, which kernels cannot read."""
    x = torch.randn(5, 7, requires_grad=True)
    torch._dynamo.reset()
    run = torch.compile(function, backend="assay", options={"fallback": "error"})
    ours, theirs = (torch.autograd.grad(call(x).sum(), x)[0] for call in (run, function))
    torch.testing.assert_close(ours, theirs)
