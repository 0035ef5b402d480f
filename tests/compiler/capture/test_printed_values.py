"""`torch._higher_order_ops.print`: it prints when the graph runs, once, in the order of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.effects import with_effects

from assay.compiler import journal
from assay.compiler.entry.aot import aot_function, nop
from assay.compiler.entry.export import aot_export_module

pytestmark = pytest.mark.skipif(not hasattr(torch.ops.higher_order, "print"), reason="this torch has no such operator")
put = torch.ops.higher_order.print if hasattr(torch.ops.higher_order, "print") else None


def noted(x: Tensor, w: Tensor) -> Tensor:
    put("size {} {y}", x.shape[0], y=3)
    y = x * 2
    put("before {}", y.detach().to(torch.int64))
    y.add_(1)
    put("after {y}", y=y.detach().to(torch.int64))
    put("nobody reads {}", w.detach().sum().to(torch.int64))
    return (y * w).sin()


def inside(x: Tensor, w: Tensor) -> Tensor:
    def taken(a: Tensor) -> Tensor:
        put("taken {}", a.sum().to(torch.int64))
        return a.sin()

    return torch.cond(x.sum() > 0, taken, lambda a: a.cos(), (x,)) * w


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        put("forward {}", x.to(torch.int64))
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        put("backward {}", gradient.to(torch.int64))
        return gradient * 2


def in_backward(x: Tensor, w: Tensor) -> Tensor:
    return InBackward.apply(x * w)  # type: ignore[no-any-return]


def printed(f: Callable[..., Tensor], size: int, grad: bool, capsys: Any) -> str:
    x, w = torch.arange(1.0, 1 + size), torch.full((size,), 2.0, requires_grad=grad)
    capsys.readouterr()
    result = f(x, w)
    if grad:
        result.sum().backward()
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("options", [{}, {"numerics": "exact"}, {"target": "aten"}], ids=str)
@pytest.mark.parametrize("f", [noted, in_backward])
def test_prints_are_compiled_in_their_order(f: Any, options: dict[str, str], grad: bool, capsys: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay", options={**options, "fallback": "error"})
    for size in (3, 3, 4, 5):
        assert printed(compiled, size, grad, capsys) == printed(f, size, grad, capsys) != ""


@pytest.mark.parametrize("grad", [False, True])
def test_a_call_from_the_cache_prints(grad: bool, capsys: Any) -> None:
    found = []
    for _ in range(2):
        torch._dynamo.reset()
        journal.reset()
        found.append(printed(torch.compile(noted, backend="assay", options={"warm": True}), 3, grad, capsys))
    assert journal.totals()["restored"] == 1
    assert found[0] == found[1] == printed(noted, 3, grad, capsys)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", [noted, inside, in_backward])
def test_prints_are_calls_of_graphs_ahead_of_time(f: Any, grad: bool, capsys: Any) -> None:
    compiled = aot_function(f, nop, dynamic=True, fallback="error")
    if f is inside and grad:  # its backward takes the branch again, as the operator's own does
        assert printed(compiled, 3, grad, capsys) == printed(f, 3, grad, capsys)
        return
    for size in (3, 3, 4):
        assert printed(compiled, size, grad, capsys) == printed(f, size, grad, capsys)


def test_a_branch_that_prints_is_compiled(capsys: Any) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(inside, backend="assay")
    assert printed(compiled, 3, False, capsys) == printed(inside, 3, False, capsys) == "taken 6\n"
    assert not journal.totals()["eager"]


def test_gradients_of_gradients_print_nothing_again(capsys: Any) -> None:
    def f(x: Tensor) -> Tensor:
        put("once {}", x.detach().to(torch.int64))
        return x.sin() * x

    found = []
    for g in (f, torch.compile(f, backend="assay")):
        torch._dynamo.reset()
        x = torch.ones(2, requires_grad=True)
        (first,) = torch.autograd.grad(g(x).sum(), x, create_graph=True)
        first.sum().backward()
        found.append((x.grad, capsys.readouterr().out))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[1][1] == found[0][1] == "once tensor([1, 1])\n"


def test_an_export_threads_prints_through_its_token(capsys: Any) -> None:
    class Prints(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            put("first {}", x.to(torch.int64))
            put("second {y}", y=x.sum().to(torch.int64))
            return (x * 2,)

    graph, signature = aot_export_module(Prints(), (torch.ones(2),), trace_joint=False)
    assert len(signature.input_tokens) == len(signature.output_tokens) == 1
    assert len(graph.graph.find_nodes(op="call_function", target=with_effects)) == 2
    capsys.readouterr()
    _, result = graph(torch.empty(0), torch.ones(2))
    assert capsys.readouterr().out == "first tensor([1, 1])\nsecond 2\n"
    torch.testing.assert_close(result, torch.full((2,), 2.0))
