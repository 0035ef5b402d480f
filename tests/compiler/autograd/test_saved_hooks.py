"""Hooks on saved tensors that are graphs: parts of forward and backward, with what they do around the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


def to_half(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def from_half(x: Tensor) -> Tensor:
    return x.to(torch.float32)


def to_bytes(x: Tensor) -> tuple[Tensor, Tensor, float, torch.Size]:
    scale = x.abs().amax().clamp(min=1e-6) / 127
    return (x / scale).round().to(torch.int8).flatten(), scale, 0.5, x.shape


def from_bytes(packed: tuple[Tensor, Tensor, float, torch.Size]) -> Tensor:
    values, scale, half, shape = packed
    return values.to(torch.float32).view(shape) * scale * half * 2


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous() if x.dim() == 2 else x + 0


def back(x: Tensor) -> Tensor:
    return x.t() if x.dim() == 2 else x


class Called(fx.GraphModule):
    """A graph of one call, of a Python function, which counts how often it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0

        def counted(value: Any) -> Any:
            self.calls += 1
            return function(value)

        graph = fx.Graph()
        graph.output(graph.call_function(counted, (graph.placeholder("value"),)))
        calls = self.calls
        super().__init__(nn.Module(), graph)
        self.calls = calls


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layers(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    h = torch.nn.functional.gelu(x @ w)
    return torch.tanh(h @ v).exp()


def sine(x: Tensor) -> Tensor:
    return x.sin()


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((8, 16), (16, 32), (32, 8))
    return [torch.randn(*shape, generator=generator).div_(4).requires_grad_() for shape in shapes]


def gradients(
    function: Callable[..., Tensor], given: list[Tensor], hooks: Hooks | None, times: int = 1
) -> list[Tensor]:
    if hooks is None:
        result = function(*given)
    else:
        with saved_tensors_hooks(*hooks):
            result = function(*given)
    for _ in range(times - 1):
        torch.autograd.grad(result.sum(), given, retain_graph=True)
    return [result, *torch.autograd.grad(result.sum(), given)]


@pytest.mark.parametrize("which", ["all", "no_static", "donated"])
@pytest.mark.parametrize(("pack", "unpack"), [(to_half, from_half), (to_bytes, from_bytes), (transposed, back)])
def test_gradients_are_of_what_is_unpacked(pack: Any, unpack: Any, which: str) -> None:
    hooks = Called(pack), Called(unpack)
    compiled = torch.compile(layers, backend="assay", options={"saved_tensors_hooks": which})
    plain = gradients(layers, inputs(), None)
    for _ in range(3):
        for times in (1, 2):
            found = gradients(compiled, inputs(), hooks, times)
            for ours, exact in zip(found, plain, strict=True):
                torch.testing.assert_close(ours, exact, rtol=0.05, atol=0.05)
    counts = [hook.calls for hook in hooks]
    gradients(compiled, inputs(), hooks)
    assert counts == [hook.calls for hook in hooks], "they run in the graphs, and no more around the call"


def test_what_is_kept_is_what_was_packed() -> None:
    hooks = Called(to_half), Called(from_half)
    compiled = torch.compile(lambda x: x.sin().exp().sin(), backend="assay")
    x = torch.randn(64, requires_grad=True)
    for _ in range(2):
        with saved_tensors_hooks(*hooks):
            result = compiled(x)
    kept = result.grad_fn.saved_tensors  # type: ignore[union-attr]
    assert kept and all(value.dtype is torch.bfloat16 for value in kept if value is not None)
    rounded = x.detach().bfloat16().float().requires_grad_()
    (expected,) = torch.autograd.grad(rounded.sin().exp().sin().sum(), rounded)
    (found,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_static_values_are_left_out() -> None:
    linear = nn.Linear(16, 16)
    x = torch.randn(4, 16, requires_grad=True)

    def kept(which: str) -> list[torch.dtype]:
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x: linear(x.sin()).exp(), backend="assay", options={"saved_tensors_hooks": which}
        )
        with saved_tensors_hooks(Called(to_half), Called(from_half)):
            result = compiled(x)
        node = result.grad_fn
        return [value.dtype for value in node.saved_tensors if value is not None]  # type: ignore[union-attr]

    halves = {which: kept(which).count(torch.bfloat16) for which in ("all", "no_static", "donated")}
    assert halves["all"] > halves["no_static"] > halves["donated"]
    assert torch.float32 not in kept("all")


def test_gradients_of_gradients_are_of_what_is_unpacked() -> None:
    hooks = Called(to_half), Called(from_half)
    compiled = torch.compile(lambda x: (x.sin() ** 3).exp(), backend="assay")
    x = torch.linspace(-1, 1, 33).requires_grad_()
    found = []
    for function, given in ((compiled, hooks), (lambda x: (x.sin() ** 3).exp(), None)):
        if given is None:
            result = function(x)
        else:
            with saved_tensors_hooks(*given):
                result = function(x)
        (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        found.append((first, *torch.autograd.grad(first.sum(), x)))
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=0.05)


def test_hooks_that_change_are_compiled_anew_and_none_are_none() -> None:
    compiled = torch.compile(sine, backend="assay")
    x = torch.randn(32, requires_grad=True)
    doubled = Called(to_half), Called(lambda packed: packed.to(torch.float32) * 2)
    plain = gradients(compiled, [x], None)[1]
    torch.testing.assert_close(plain, x.cos())
    halved = gradients(compiled, [x], (Called(to_half), Called(from_half)))[1]
    torch.testing.assert_close(halved, x.bfloat16().float().cos())
    torch.testing.assert_close(gradients(compiled, [x], doubled)[1], (x.bfloat16().float() * 2).cos())
    torch.testing.assert_close(gradients(compiled, [x], None)[1], x.cos())


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_are_packed(dynamic: bool) -> None:
    compiled = torch.compile(lambda x: x.sin().exp(), backend="assay", dynamic=dynamic)
    hooks = Called(to_bytes), Called(from_bytes)
    for size in (8, 12, 20):
        x = torch.linspace(-1, 1, size * 3).view(size, 3).requires_grad_()
        found, exact = gradients(compiled, [x], hooks), gradients(lambda x: x.sin().exp(), [x], None)
        torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)


def test_graphs_of_operators_do_as_functions() -> None:
    hooks = fx.symbolic_trace(lambda x: (x * 16).round().to(torch.int8)), fx.symbolic_trace(lambda q: q.float() / 16)
    compiled = torch.compile(lambda a, b: a * b, backend="assay")
    pair = [torch.randn(5, requires_grad=True) for _ in range(2)]
    found, expected = gradients(compiled, pair, hooks), gradients(torch.mul, pair, hooks)
    torch.testing.assert_close(found, expected)


def test_a_hook_that_writes_is_refused() -> None:
    compiled = torch.compile(sine, backend="assay")
    x = torch.randn(8, requires_grad=True)
    with pytest.raises(RuntimeError, match="HookError: A saved tensor pack hook is modifying its input in place"):
        gradients(compiled, [x], (Called(lambda x: x.mul_(2)), Called(lambda x: x)))


def test_a_hook_that_gives_back_something_else_is_refused() -> None:
    compiled = torch.compile(sine, backend="assay")
    x = torch.randn(8, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"gives a dtype of torch.bfloat16, where torch.float32 was packed"):
        gradients(compiled, [x], (Called(to_half), Called(lambda packed: packed)))
