"""Graphs that the compiler cannot take as a whole: the refused node runs in eager, all else is generated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler import journal
from assay.compiler.entry.pieces.parts import Part
from assay.compiler.entry.pieces.piece import MOST_VARIANTS
from assay.compiler.entry.pieces.run import InPieces, Step


def writes_what_overlaps(x: Tensor, w: Tensor) -> Tensor:
    """A node in the middle that no recording takes: it writes memory that overlaps itself."""
    y = (x @ w).relu()
    z = y.new_zeros(1).expand(3)
    z.zero_()
    return (y.sin() * 2 + z.sum()).cos()


def totals() -> dict[str, Any]:
    return dict(journal.totals())


def check(f: Callable[..., Any], *calls: Sequence[Any], train: bool = True) -> dict[str, Any]:
    """Holds a compiled function to eager over some calls; gives the counts."""
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    for args in calls:
        ours = [a.clone().requires_grad_(train) if isinstance(a, Tensor) else a for a in args]
        theirs = [a.clone().requires_grad_(train) if isinstance(a, Tensor) else a for a in args]
        found, expected = compiled(*ours), f(*theirs)
        torch.testing.assert_close(found, expected)
        if train:
            found.sum().backward()
            expected.sum().backward()
            for mine, other in zip(ours, theirs, strict=True):
                if isinstance(mine, Tensor):
                    torch.testing.assert_close(mine.grad, other.grad)
    return totals()


def test_only_the_refused_node_runs_in_eager() -> None:
    counted = check(writes_what_overlaps, (torch.randn(3, 3), torch.randn(3, 3)))
    assert counted["eager_graphs"] == 0 and counted["cuts"] == 1
    assert sum(counted["eager"].values()) == 1 and counted["nodes_generated"] >= 5


def test_fallback_error_still_raises() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="overlaps itself"):
        torch.compile(writes_what_overlaps, backend="assay", options={"fallback": "error"})(
            torch.randn(3, 3), torch.randn(3, 3)
        )


def test_sizes_that_change_make_one_more_variant() -> None:
    calls = [(torch.randn(n, 3), torch.randn(3, 3)) for n in (4, 5, 6, 7)]
    counted = check(writes_what_overlaps, *calls)
    assert counted["eager_graphs"] == 0 and counted["compiles"] <= 6


def test_an_integer_of_the_users_is_a_symbol_in_its_pieces() -> None:
    def f(x: Tensor, n: int) -> Tensor:
        z = x.new_zeros(1).expand(3)
        z.zero_()
        return x.sin() * n + z.sum() + n

    counted = check(f, *[(torch.randn(3), n) for n in (2, 3, 4, 5, -1, 0)])
    assert counted["eager_graphs"] == 0 and "too many kinds" not in str(counted["eager"])


def test_an_integer_that_is_read_as_a_float_is_guarded() -> None:
    def f(x: Tensor, n: int) -> Tensor:
        z = x.new_zeros(1).expand(3)
        z.zero_()
        return x.norm(n) * 2 + z.sum()

    counted = check(f, *[(torch.randn(3), n) for n in (3, 2, 4)])
    assert counted["eager_graphs"] == 0


def test_a_float_that_changes_is_not_greater_than_itself() -> None:
    """`hardtanh` refuses bounds of which the least is greater, and both are the float."""

    def f(x: Tensor, bound: float) -> Tensor:
        y = torch.nn.functional.hardtanh(x, bound, bound) * x
        z = y.new_zeros(1).expand(3)
        z.zero_()
        return y + z.sum()

    counted = check(f, *((torch.randn(3), bound) for bound in (0.5, 0.25, -1.5)))
    assert counted["eager_graphs"] == 0 and sum(counted["eager"].values()) == 2


def test_a_float_of_the_users_is_read_by_kernels() -> None:
    def f(x: Tensor, rate: float) -> Tensor:
        z = x.new_zeros(1).expand(3)
        z.zero_()
        return x.sin() * rate + z.sum()

    counted = check(f, *[(torch.randn(3), 0.1 * n) for n in range(1, 2 * MOST_VARIANTS)])
    reasons = [reason for reason in counted["eager"] if "overlaps itself" not in reason]
    assert counted["eager_graphs"] == 0 and reasons == []


def test_a_float_that_the_formula_of_a_gradient_asks_for_is_cut_out() -> None:
    """The gradient of a power is zeros where the exponent is 0."""

    def f(x: Tensor, exponent: float) -> Tensor:
        z = x.new_zeros(1).expand(3)
        z.zero_()
        return (x.exp() ** exponent).sin() * 2 + z.sum()

    counted = check(f, *((torch.randn(3), exponent) for exponent in (0.75, 1.5, 0.0)))
    assert counted["eager_graphs"] == 0 and not any("as eager's will" in reason for reason in counted["eager"])


def test_a_float_that_changes_is_read_by_a_gradient_of_a_gradient() -> None:
    """Each recording counts the numbers anew that it reads; the value that forward kept is found again all the same."""

    def f(x: Tensor, rate: float, other: float) -> Tensor:
        z = x.new_zeros(1).expand(3)
        z.zero_()
        return x.sin() * max(rate, other / 3) * other + z.sum()

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay")
    for rate in (1.5, 0.25, 3.0):
        found = []
        for run in (compiled, f):
            x = torch.arange(3.0).requires_grad_()
            (slope,) = torch.autograd.grad(run(x, rate, 2 * rate).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(slope.sum(), x)[0])
        torch.testing.assert_close(*found)


def test_autocast_around_a_refused_node() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            z = x.new_zeros(1).expand(3)
            z.zero_()
            return (y @ w).float() + z.sum()

    counted = check(f, (torch.randn(4, 4), torch.randn(4, 4)), train=False)
    assert counted["eager_graphs"] == 0


def test_a_subclass_leaves_the_rest_compiled() -> None:
    def f(two: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x.sin() + 1).relu()
        doubled = two * 2
        return doubled, (y * 2).cos()

    two, x = TwoTensor(torch.ones(4), torch.zeros(4)), torch.randn(4, 4)
    torch._dynamo.reset()
    journal.reset()
    found, rest = torch.compile(f, backend="assay")(two, x)
    assert type(found) is TwoTensor and torch.equal(found.a, torch.full((4,), 2.0))
    torch.testing.assert_close(rest, f(two, x)[1])
    counted = totals()
    assert counted["eager_graphs"] == 0 and counted["nodes_generated"] >= 4


def test_values_are_freed_after_their_last_reader() -> None:
    """What no later part reads is gone when that part runs."""
    held: list[bool] = []
    made: list[weakref.ref[Tensor]] = []

    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        big = x.sin()
        made.append(weakref.ref(big))
        return big, x.cos()

    def second(big: Tensor) -> tuple[Tensor]:
        return (big.sum(),)

    def third(a: Tensor, b: Tensor) -> tuple[Tensor]:
        held.append(made[0]() is not None)
        return (a + b,)

    nothing = fx.GraphModule({}, fx.Graph())
    output = fx.Graph().placeholder("out")
    steps = (
        Step(Part(nothing, ("x",), ("big", "c"), False), first, ()),
        Step(Part(nothing, ("big",), ("s",), True), second, ("big",)),
        Step(Part(nothing, ("s", "c"), ("out",), False), third, ("s", "c")),
    )
    InPieces(("x",), steps, (output,))(torch.ones(3))
    assert held == [False]


def writes_behind_autograd(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).sin()
    z = y.new_ones(1).expand(3)
    z.data.zero_()
    return y + z.sum() * w


def test_write_behind_autograd_is_cut_out() -> None:
    for train in (False, True):
        counted = check(writes_behind_autograd, (torch.randn(3, 3), torch.randn(3, 3)), train=train)
        assert counted["eager_graphs"] == 0 and counted["cuts"] > 0


def test_integers_of_which_others_leave_64_bits_are_compiled_for_themselves() -> None:
    def f(x: Tensor, n: int) -> Tensor:
        return x.sin() * (n * 4 // 8) + 1

    counted = check(f, *[(torch.randn(3), n) for n in (2, 3, 1 << 62, -(1 << 62), (1 << 62) + 1, 5)], train=False)
    assert counted["eager_graphs"] == counted["cuts"] == 0


def test_a_negative_zero_where_a_graph_is_made_for_zero_leaves_the_rest_compiled() -> None:
    """A dropout reads its share as a number, on which Dynamo puts a guard that takes -0.0 for 0.0."""

    def f(x: Tensor, share: float) -> Tensor:
        return torch.nn.functional.dropout(x.sin(), share) * 2 + 1 / (x * 0 + share)

    counted = check(f, *[(torch.ones(3), share) for share in (1.0, -0.0, 0.0)], train=False)
    assert counted["eager_graphs"] == 0 and counted["cuts"] > 0


def test_data_that_is_only_read_does_not_keep_a_graph_whole() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).sin()
        z = y.new_ones(1).expand(3)
        z.zero_()
        return torch.minimum(y, y.data.view(-1)[:3]) + z.sum() * w

    counted = check(f, (torch.randn(3, 3), torch.randn(3, 3)))
    assert counted["eager_graphs"] == 0 and counted["cuts"] == 1
