"""Tokens of effects in the graphs of a caller's own compilers: those of torch, and gone from the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from functorch.compile import aot_function as function_of_torch
from functorch.compile import min_cut_rematerialization_partition as cut_of_torch
from torch import Tensor, fx, nn
from torch._functorch import config
from torch._functorch.aot_autograd import aot_export_module as export_of_torch
from torch._higher_order_ops.effects import with_effects
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.entry.aot import (
    aot_function,
    default_decompositions,
    default_partition,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from assay.compiler.entry.export import aot_export_module
from tests.compiler.entry.ahead.effectful_operators import effectful_operators

log: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """`heard` is heard again in backward."""
    library = effectful_operators("assay_effect_tokens", log, lambda x: x * 2)

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.ops.assay_effect_tokens.heard(gradient, "backward"), None

    def sum_of_both(ctx: Any, one: Tensor, other: Tensor) -> Tensor:
        return one + other

    torch.library.register_autograd("assay_effect_tokens::heard", backward, lib=library)
    torch.library.register_autograd("assay_effect_tokens::twice", sum_of_both, lib=library)
    yield
    library._destroy()


class Reads(torch.autograd.Function):
    """Its backward has an effect that reads no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        one, other = torch.ops.assay_effect_tokens.twice(x)
        return gradient * one * other


def in_forward(x: Tensor, y: Tensor) -> Tensor:
    torch.ops.assay_effect_tokens.note("first")
    one, other = torch.ops.assay_effect_tokens.twice(x)
    torch.ops.assay_effect_tokens.note("last")
    return one * other * y * x


def in_both(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.assay_effect_tokens.heard(x.sin(), "forward") + y


def in_backward(x: Tensor, y: Tensor) -> Tensor:
    return Reads.apply(x) + y  # type: ignore[no-any-return]


def kept_for_backward(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.assay_effect_tokens.heard(x, "kept") * y


def without(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() * y


PROGRAMS = (in_forward, in_both, in_backward, kept_for_backward, without)


def plain(grad: bool) -> tuple[Tensor, Tensor]:
    return torch.tensor([1.0, 2.0], requires_grad=grad), torch.tensor([3.0, 4.0], requires_grad=grad)


def pairs(grad: bool) -> tuple[Tensor, Tensor]:
    return TwoTensor(*plain(grad)), TwoTensor(*plain(grad))


def texts(front: Callable[..., Any], cut: Any, f: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[str]:
    """The texts of the graphs that a front door gives to compilers, and what the effects were."""
    found: list[str] = []
    log.clear()

    def compiler(graph: fx.GraphModule, _: object) -> fx.GraphModule:
        found.append(with_tokens_alone(graph))
        return make_boxed_func(graph)

    result = front(f, compiler, partition_fn=cut, decompositions=default_decompositions)(*inputs)
    if result.requires_grad:
        found.append(str(log))
        result.sum().backward()
    return [*found, str(log)]


def with_tokens_alone(graph: fx.GraphModule) -> str:
    """The lines of a graph that have to do with tokens, and the first and the last of what it takes and returns."""
    lines = graph.code.strip().splitlines()
    taken, returned = lines[0].split(", "), lines[-1].strip().removeprefix("return ").strip("()").split(", ")
    calls = [line.split(";")[0] for line in lines if "with_effects" in line or "_token" in line]
    return "\n".join([*calls, *taken[:2], *taken[-2:], returned[0], returned[-1].strip(","), str(len(returned))])


@pytest.mark.parametrize("inputs", [plain, pairs])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", PROGRAMS)
def test_graphs_with_effects_are_torchs(f: Any, grad: bool, inputs: Callable[[bool], tuple[Tensor, Tensor]]) -> None:
    ours = texts(aot_function, min_cut_rematerialization_partition, f, inputs(grad))
    wanted = texts(function_of_torch, cut_of_torch, f, inputs(grad))
    assert ours == wanted


@pytest.mark.parametrize("inputs", [plain, pairs])
@pytest.mark.parametrize("f", PROGRAMS)
def test_calls_with_tokens_do_what_eager_does(f: Any, inputs: Callable[[bool], tuple[Tensor, Tensor]]) -> None:
    given, again = inputs(True), inputs(True)
    log.clear()
    want = f(*given)
    want.sum().backward()
    expected = list(log)
    compiled = aot_function(f, lambda graph, _: graph, partition_fn=default_partition, fallback="error")
    for _ in range(2):
        log.clear()
        for each in again:
            each.grad = None
        got = compiled(*again)
        got.sum().backward()
        assert log == expected
        torch.testing.assert_close(torch.stack([*parts(got)]), torch.stack([*parts(want)]))
        for one, other in zip(again, given, strict=True):
            torch.testing.assert_close(torch.stack([*parts(one.grad)]), torch.stack([*parts(other.grad)]))


def parts(value: Any) -> list[Tensor]:
    """The plain tensors of a value; a zero for None."""
    return [value.a, value.b] if isinstance(value, TwoTensor) else [torch.zeros(()) if value is None else value]


def test_tokens_are_made_in_the_graph_where_torch_is_told_so() -> None:
    with config.patch(unlift_effect_tokens=True):
        for f in PROGRAMS:
            ours = texts(aot_function, min_cut_rematerialization_partition, f, plain(True))
            assert ours == texts(function_of_torch, cut_of_torch, f, plain(True)), f

        class Calls(nn.Module):
            def forward(self, x: Tensor) -> tuple[Tensor]:
                return (in_forward(x, x),)

        ours, signature = aot_export_module(Calls(), (torch.ones(2),), trace_joint=False)
        wanted, _ = export_of_torch(Calls(), (torch.ones(2),), trace_joint=False)
    drop = str.maketrans("", "", " ")
    assert isinstance(wanted, fx.GraphModule)
    assert "_make_token" in ours.code and ours.code.count("_sink_tokens") == wanted.code.count("_sink_tokens")
    assert signature.input_tokens == [] == signature.output_tokens
    assert ours.code.translate(drop).splitlines()[0] == wanted.code.translate(drop).splitlines()[0]


def test_a_graph_with_tokens_is_recorded_again() -> None:
    class Calls(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (in_forward(x, x),)

    graph, _ = aot_export_module(Calls(), (torch.ones(2),), trace_joint=False)
    given = (torch.empty(0), torch.tensor([1.0, 2.0]))
    expected = in_forward(given[1], given[1])
    for run in (
        aot_function(lambda *args: graph(*args), lambda inner, _: inner, fallback="error"),
        torch.compile(graph, backend="assay", options={"fallback": "error"}),
    ):
        log.clear()
        token, result = run(*given)
        assert log == ["first", "twice", "last"] and token.shape == (0,)
        torch.testing.assert_close(result, expected)


def test_a_call_with_a_token_and_no_effect_is_the_call() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        token, total = with_effects(torch.ops.prims._make_token(), torch.ops.aten.add.Tensor, x, y)
        token, product = with_effects(token, torch.ops.aten.mul.Tensor, total, y)
        return product  # type: ignore[no-any-return]

    x, y = plain(False)
    torch.testing.assert_close(aot_function(f, lambda graph, _: graph, fallback="error")(x, y), (x + y) * y)
