"""Gradients of gradients: what they cost whoever never asks, and where they come from when somebody does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from assay.compiler import journal
from assay.compiler.assembly import halves
from assay.compiler.entry.aot import aot_function
from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import Unsupported
from assay.compiler.runtime import higher_order

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch._dynamo.reset()
    journal.reset()


def waves(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin() * x.exp()


def inputs() -> tuple[Tensor, Tensor]:
    x, w = torch.linspace(-1, 1, 9).view(3, 3), torch.linspace(1, 2, 9).view(3, 3)
    return x.requires_grad_(), w.requires_grad_()


def second(function: Function, *leaves: Tensor) -> list[Tensor]:
    slopes = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
    return [*slopes, *torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves)]  # type: ignore[arg-type]


def saving(function: Function, *leaves: Tensor) -> tuple[Tensor, list[int]]:
    """The result, and of how many elements each tensor was that autograd saved."""
    saved: list[int] = []

    def pack(value: Tensor) -> Tensor:
        saved.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        return function(*leaves), saved


def test_nothing_is_recorded_or_kept_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    order = higher_order.HigherOrder.order
    monkeypatch.setattr(higher_order.HigherOrder, "order", lambda *args: made.append(args[1:]) or order(*args))
    compiled = torch.compile(lambda x: x.exp(), backend=assay, dynamic=False)
    leaf = torch.ones(3, requires_grad=True)
    for x, expected in ((leaf, [3]), (leaf * 2, [3, 0])):
        y, saved = saving(compiled, x)
        assert saved == expected, "an input that is no leaf and is not saved is found through an anchor, of no elements"
        y.sum().backward()
    assert not made
    second(compiled, leaf)
    assert [len(path) for path, *_ in made] == [1, 2]


def test_each_order_is_built_once() -> None:
    compiled = torch.compile(waves, backend=assay, dynamic=False)
    second(compiled, *inputs())
    kernels = journal.totals()["kernels"]
    for _ in range(3):
        second(compiled, *inputs())
    assert journal.totals()["kernels"] == kernels


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_restored_call_has_gradients_of_gradients(tmp_path: Path, dynamic: bool) -> None:
    options = {"cache": str(tmp_path), "warm": True}
    for restored in (0, 1):
        torch._dynamo.reset()
        compiled = torch.compile(waves, backend="assay", options=options, dynamic=dynamic)
        torch.testing.assert_close(second(compiled, *inputs()), second(waves, *inputs()))
        assert journal.totals()["restored"] == restored


def test_compilers_of_the_callers_own_are_given_each_order() -> None:
    graphs: list[fx.GraphModule] = []

    def note(gm: fx.GraphModule, _: object) -> Function:
        graphs.append(gm)
        return gm.forward

    compiled = aot_function(waves, note)
    torch.testing.assert_close(second(compiled, *inputs()), second(waves, *inputs()))
    assert len(graphs) == 4, "the forward; its gradients; theirs; what flows back through the tangent they were under"


def test_exact_numerics_are_bitwise_eagers() -> None:
    def smooth(x: Tensor, w: Tensor) -> Tensor:
        return x * w * x + w

    compiled = torch.compile(smooth, backend=assay, options={"numerics": "exact"}, dynamic=False)
    for ours, eagers in zip(second(compiled, *inputs()), second(smooth, *inputs()), strict=True):
        assert torch.equal(ours, eagers)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_finite_differences_agree(dynamic: bool) -> None:
    def programs() -> list[Function]:
        return [
            waves,
            lambda x, w: F.softmax(x * w, -1).log(),
            lambda x, w: F.layer_norm(x, (3,), w[0]),
            lambda x, w: torch.logsumexp(x, 0) * w.var(1),
            lambda x, w: torch.where(x > w - 1.7, x * w, w.exp()),
        ]

    for program in programs():
        compiled = torch.compile(program, backend=assay, dynamic=dynamic)
        leaves = tuple(value.detach().double().requires_grad_() for value in inputs())
        assert torch.autograd.gradcheck(compiled, leaves)
        assert torch.autograd.gradgradcheck(compiled, leaves)


def _weighted(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w).tanh().sum((2, 3)) * x.shape[0] + x.mean()


@pytest.mark.parametrize("order", [2, 3])
def test_an_order_is_recorded_for_the_sizes_that_it_is_asked_for(order: int) -> None:
    """torch's second gradient of a convolution asks for every size, which no guard may say any more by then."""

    def gradients(function: Function, batch: int, side: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(batch)
        shapes = ((batch, 3, side, side), (4, 3, 3, 3))
        leaves = [torch.rand(s, generator=generator, dtype=torch.float64).div(8).requires_grad_() for s in shapes]
        value, found = function(*leaves).square().sum(), []
        for _ in range(order):
            given = torch.autograd.grad(value, leaves, create_graph=True)
            found += given
            value = sum(g.square().mean() for g in given)
        return found

    compiled = torch.compile(_weighted, backend=assay, dynamic=True)
    for batch, side in ((2, 6), (5, 6), (3, 7), (5, 6)):
        for ours, eager in zip(gradients(compiled, batch, side), gradients(_weighted, batch, side), strict=True):
            torch.testing.assert_close(ours, eager)


def _dropping(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout((x @ w).tanh(), 0.4) @ w.t()


@pytest.mark.parametrize("is_region", [False, True], ids=["kept", "drawn again"])
def test_random_numbers_are_found_again_whatever_the_sizes(is_region: bool) -> None:
    """The weight is used transposed, a view that is free to make again of an input that is held."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(_dropping, x, w, use_reentrant=False) if is_region else _dropping(x, w)

    compiled = torch.compile(function, backend=assay, dynamic=True)
    for rows in (300, 200):
        leaves = [torch.randn(rows, 64).requires_grad_(), torch.randn(64, 96).div(8).requires_grad_()]
        found = []
        for one in (function, compiled):
            torch.manual_seed(1)
            found.append([*second(one, *leaves), torch.rand(2)])
        for ours, eager in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours, eager, rtol=0, atol=1e-5 * eager.abs().max().item())


def test_threads_take_second_gradients_of_one_call_side_by_side() -> None:
    compiled = torch.compile(waves, backend=assay, dynamic=False)
    expected = second(waves, *inputs())
    second(compiled, *inputs())
    x, w = inputs()
    slopes = torch.autograd.grad(compiled(x, w).square().sum(), (x, w), create_graph=True)
    norm = sum(slope.square().sum() for slope in slopes)
    found: list[Any] = []

    def run() -> None:
        found.append(torch.autograd.grad(norm, (x, w), retain_graph=True))  # type: ignore[arg-type]

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for gradients in found:
        torch.testing.assert_close(list(gradients), expected[2:])


def test_a_backward_that_fails_leaves_nothing_behind() -> None:
    compiled = torch.compile(waves, backend=assay, dynamic=False)
    x, w = inputs()
    hidden = x.clone()
    slopes = torch.autograd.grad(compiled(hidden, w).square().sum(), (hidden, w), create_graph=True)
    norm = sum(slope.square().sum() for slope in slopes)

    def refuse(_: Tensor) -> None:
        raise ValueError("refused")

    handle = hidden.register_hook(refuse)
    with pytest.raises(ValueError, match="refused"):
        torch.autograd.grad(norm, (x, w), retain_graph=True)  # type: ignore[arg-type]
    handle.remove()
    found = torch.autograd.grad(norm, (x, w))  # type: ignore[arg-type]
    torch.testing.assert_close(list(found), second(waves, *inputs())[2:])


def test_what_eager_has_no_formula_for_is_eagers_error() -> None:
    def attention(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q)

    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    for function in (attention, torch.compile(attention, backend=assay, dynamic=False)):
        with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
            second(function, q)


def test_random_numbers_that_were_not_kept_are_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "kept_by", lambda forward: {})
    compiled = torch.compile(lambda x: F.dropout(x.sin(), 0.5), backend=assay, dynamic=False)
    with pytest.raises(Unsupported, match="needs"):
        second(compiled, torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("norm", ["nuc", 2])
def test_second_gradients_of_singular_values_find_what_their_formula_reads(norm: object) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(x, norm) + torch.linalg.eigvalsh(x + x.mT).exp().sum()

    found = []
    for function in (torch.compile(f, backend="assay"), f):
        x = torch.linspace(-1, 1, 16, dtype=torch.float64).cos().view(4, 4).add(torch.eye(4)).requires_grad_()
        (first,) = torch.autograd.grad(function(x), x, create_graph=True)
        found.append((first.detach(), *torch.autograd.grad(first.square().sum(), x)))
    torch.testing.assert_close(*found)


def test_dropout_of_what_lies_otherwise_than_before_has_gradients_of_gradients() -> None:
    """The second graph has symbols for strides and none for sizes: its random numbers are kept as ATen draws them."""

    def dropped(x: Tensor, w: Tensor) -> Tensor:
        return F.dropout((x @ w).tanh(), 0.5)

    compiled = torch.compile(dropped, backend=assay)
    found = []
    for f in (dropped, compiled):
        torch.manual_seed(0)
        x, w = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (1, 4))
        (first,) = torch.autograd.grad(f(f(x.expand(4, -1), w), w).square().sum(), [w], create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, w]))
    torch.testing.assert_close(found[0], found[1])


def test_a_weight_that_autocast_casts_twice_has_gradients_of_gradients() -> None:
    """Eager's autocast casts it once, a recording each time; forward keeps one. Halves tell three digits."""
    weight = torch.randn(4, 4, requires_grad=True)

    def twice(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(F.linear(x, weight).tanh(), weight)

    x, found = torch.randn(3, 4, requires_grad=True), []
    for f in (twice, torch.compile(twice, backend=assay)):
        (first,) = torch.autograd.grad(f(x).float().square().sum(), [x], create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x])[0])
    torch.testing.assert_close(found[1], found[0], rtol=0.02, atol=0.02 * float(found[0].abs().max()))


def test_batch_norm_of_changing_sizes_has_gradients_of_gradients() -> None:
    """It divides by a size that is a symbol: a number that the recording for known sizes has not."""
    norm = torch.nn.BatchNorm1d(4)

    def normed(x: Tensor) -> Tensor:
        return F.dropout(norm(x).tanh(), 0.5)

    compiled, found = torch.compile(normed, backend=assay), []
    for f in (normed, compiled):
        torch.manual_seed(0)
        for rows in (8, 3):
            x = torch.randn(rows, 4, requires_grad=True)
            (first,) = torch.autograd.grad(f(x).square().sum(), [x], create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), [x])[0])
    torch.testing.assert_close(found[2:], found[:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True], ids=["automatic", "dynamic"])
def test_dropout_beside_an_integer_that_changes_has_gradients_of_gradients(dynamic: bool | None) -> None:
    """The recording for known numbers draws under the names under which forward kept its draws."""

    def dropped(x: Tensor, n: int) -> Tensor:
        return F.dropout(F.dropout(x.square(), 0.5).sin(), 0.25) * n

    compiled, found = torch.compile(dropped, backend=assay, dynamic=dynamic), []
    for f in (dropped, compiled):
        torch.manual_seed(0)
        for n in (2, 1, 5):
            x = torch.arange(12.0).div(5).requires_grad_()
            (first,) = torch.autograd.grad(f(x, n).sum(), [x], create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), [x])[0])
    torch.testing.assert_close(found[3:], found[:3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_returned", [False, True], ids=["unread", "returned"])
def test_a_view_that_leaves_its_tensor_stands_beside_gradients_of_gradients(is_returned: bool) -> None:
    """With symbolic sizes an order is recorded anew, of tensors in memory as large as the input's."""

    def with_view(x: Tensor, part: Tensor) -> tuple[Tensor, ...]:
        rest = part.as_strided((3,), (3,), 1)
        return (x.sin() * x, rest) if is_returned else (x.sin() * x,)

    found = []
    for function in (with_view, torch.compile(with_view, backend=assay, dynamic=True)):
        x, memory = torch.linspace(-1, 1, 9).requires_grad_(), torch.arange(9.0)
        results = function(x, memory[0::3])
        (slope,) = torch.autograd.grad(results[0].sum(), x, create_graph=True)
        found.append([*results, slope, *torch.autograd.grad(slope.sum(), x)])
    for eagers, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eagers)
