"""Hooks on what autograd saves, and what a user's function keeps on its context.

How many tensors a compiled call packs is its own: it saves other values than eager does. What a user may rely on is
when hooks run, that what is unpacked is what was packed, and that all that is packed once is unpacked once a backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, program

hooks = "saved-tensor-hooks"
TRAIN = ("train",)


class Log:
    """A pair of hooks that note what they are called for."""

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        self.packed = 0
        self.unpacked: list[int] = []
        self._change = change

    def pack(self, x: Tensor) -> tuple[int, Tensor]:
        self.packed += 1
        return self.packed, self._change(x.detach())

    def unpack(self, packed: tuple[int, Tensor]) -> Tensor:
        number, x = packed
        self.unpacked.append(number)
        return x

    def facts(self) -> tuple[bool, bool]:
        """Whether anything was packed, and whether each of it has been unpacked as often as all others."""
        counts = {self.unpacked.count(number) for number in range(1, self.packed + 1)}
        return self.packed > 0, len(counts) <= 1


def _gradients(result: Tensor, *inputs: Tensor, retain: bool = False) -> list[Tensor]:
    found = torch.autograd.grad(result.square().sum(), inputs, retain_graph=retain)
    return [gradient.clone() for gradient in found]


def _tanh(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w).exp()


def _around_the_call(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log = Log()
    with saved_tensors_hooks(log.pack, log.unpack):
        result = f(x, w)
    before = log.facts(), list(log.unpacked)
    gradients = _gradients(result, x, w, retain=True)
    again = _gradients(result, x, w)
    return before, log.facts(), gradients, again


@program(hooks, modes=TRAIN, scenario=_around_the_call)
def hooks_around_the_call_pack_then_unpack_at_each_backward() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _around_backward_only(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    result, log = f(x, w), Log()
    with saved_tensors_hooks(log.pack, log.unpack):
        gradients = _gradients(result, x, w)
    return len(log.unpacked), gradients


@program(hooks, modes=TRAIN, scenario=_around_backward_only)
def hooks_around_backward_alone_unpack_nothing() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _second_call_only(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log = Log()
    first = f(x, w)
    with saved_tensors_hooks(log.pack, log.unpack):
        second = f(x, w)
    third = f(x, w)
    found = [_gradients(first, x, w), len(log.unpacked), _gradients(third, x, w), len(log.unpacked)]
    return found, _gradients(second, x, w), log.facts(), len(log.unpacked) > 0


@program(hooks, modes=TRAIN, scenario=_second_call_only)
def hooks_around_one_of_three_calls_are_that_calls() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _nested(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    outer, inner = Log(), Log()
    with saved_tensors_hooks(outer.pack, outer.unpack), saved_tensors_hooks(inner.pack, inner.unpack):
        result = f(x, w)
    return outer.packed, inner.facts(), _gradients(result, x, w), inner.facts()


@program(hooks, modes=TRAIN, scenario=_nested)
def innermost_hooks_are_the_ones_that_run() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _zeroing(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    log = Log(torch.zeros_like)
    with saved_tensors_hooks(log.pack, log.unpack):
        result = f(x, w)
    return result.detach(), torch.autograd.grad(result.sum(), (x, w))


@program(hooks, modes=TRAIN, scenario=_zeroing)
def backward_computes_with_what_was_unpacked() -> Made:
    return torch.mul, (leaf(3, 3), leaf(3, 3)), {}


def _on_cpu(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    with save_on_cpu():
        result = f(x, w)
    with torch.no_grad():
        x.add_(1)  # what was saved is a copy
    return _gradients(result, x, w)


@program(hooks, modes=TRAIN, scenario=_on_cpu)
def saved_on_cpu_is_a_copy() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _disabled(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    with disable_saved_tensors_hooks("not here"):
        result = f(x, w)
    return _gradients(result, x, w)


@program(hooks, modes=TRAIN, scenario=_disabled)
def call_where_hooks_are_disabled() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _refused(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    result, log = f(x, w), Log()
    with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(log.pack, log.unpack):
        return f(result, w)


@program(hooks, modes=TRAIN, scenario=_refused)
def hooks_where_they_are_disabled_are_refused() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _raising(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    def pack(_: Tensor) -> Tensor:
        raise ZeroDivisionError("pack")

    with saved_tensors_hooks(pack, lambda x: x):
        return f(x, w)


@program(hooks, modes=TRAIN, scenario=_raising)
def error_of_a_pack_hook_is_the_calls() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _raising_in_backward(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    def unpack(_: Tensor) -> Tensor:
        raise ZeroDivisionError("unpack")

    with saved_tensors_hooks(lambda x: x, unpack):
        result = f(x, w)
    return _gradients(result, x, w)


@program(hooks, modes=TRAIN, scenario=_raising_in_backward)
def error_of_an_unpack_hook_is_backwards() -> Made:
    return _tanh, (leaf(3, 3), leaf(3, 3)), {}


def _mutating(f: Callable[..., Tensor], x: Tensor) -> Any:
    with saved_tensors_hooks(lambda x: x.mul_(2), lambda x: x):
        return f(x)


@program(hooks, modes=TRAIN, scenario=_mutating)
def pack_hook_that_writes_is_refused() -> Made:
    return torch.sin, (leaf(3, 3),), {}


def _pack_to_bytes(x: Tensor) -> tuple[Tensor, float]:
    return (x * 16).round().to(torch.int8), 0.0625


def _unpack_from_bytes(packed: tuple[Tensor, float]) -> Tensor:
    return packed[0].to(torch.float32) * packed[1]


def _hooks_as_graphs(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    pack, unpack = fx.symbolic_trace(_pack_to_bytes), fx.symbolic_trace(_unpack_from_bytes)
    with saved_tensors_hooks(pack, unpack):
        result = f(x, w)
    plain = f(x, w)
    return [torch.autograd.grad(each.sum(), (x, w)) for each in (result, plain)]


@program(hooks, modes=TRAIN, scenario=_hooks_as_graphs)
def hooks_that_are_graphs_quantize_what_is_saved() -> Made:
    return torch.mul, (leaf(3, 3), leaf(3, 3)), {}


# ---- what a function keeps on its context


class Stashed(torch.autograd.Function):
    """x * x, whose input is kept as an attribute of the context, of which autograd knows nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * gradient * ctx.x


class Saved(torch.autograd.Function):
    """x * x, whose input is saved for backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * gradient * x


class Both(torch.autograd.Function):
    """x * y, where x is saved and y is kept as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.y = y
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * ctx.y, gradient * x


def _written_before_backward(place: int) -> Callable[..., Any]:
    def scenario(f: Callable[..., Tensor], *inputs: Tensor) -> Any:
        result = f(*inputs)
        with torch.no_grad():
            inputs[place].add_(1)
        return torch.autograd.grad(result.sum(), inputs)

    return scenario


@program(hooks, modes=TRAIN, scenario=_written_before_backward(0))
def stashed_input_is_written_before_backward() -> Made:
    return Stashed.apply, (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_written_before_backward(0))
def saved_input_is_written_before_backward() -> Made:
    return Saved.apply, (leaf(3),), {}


@program(hooks, modes=TRAIN, scenario=_written_before_backward(0))
def saved_one_of_two_is_written_before_backward() -> Made:
    return Both.apply, (leaf(3), leaf(3)), {}


@program(hooks, modes=TRAIN, scenario=_written_before_backward(1))
def stashed_one_of_two_is_written_before_backward() -> Made:
    return Both.apply, (leaf(3), leaf(3)), {}


def _result_written(f: Callable[..., Tensor], x: Tensor) -> Any:
    result = f(x)
    with torch.no_grad():
        result.add_(1)
    return torch.autograd.grad(result.sum(), x)


class StashedResult(torch.autograd.Function):
    """exp(x), whose result is kept as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.y = x.exp()
        return ctx.y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * ctx.y


@program(hooks, modes=TRAIN, scenario=_result_written)
def stashed_result_is_written_before_backward() -> Made:
    return StashedResult.apply, (leaf(3),), {}


def _saved_too(x: Tensor) -> Tensor:
    return Stashed.apply(x) + x.sin()  # type: ignore[no-any-return, no-untyped-call]


@program(hooks, modes=TRAIN, scenario=_written_before_backward(0))
def stashed_input_that_an_operator_saves_too_is_written_before_backward() -> Made:
    return _saved_too, (leaf(3),), {}


def _by_two_functions(x: Tensor) -> Tensor:
    return Stashed.apply(x) + Saved.apply(x)  # type: ignore[no-any-return, no-untyped-call]


@program(hooks, modes=TRAIN, scenario=_written_before_backward(0))
def input_stashed_by_one_function_and_saved_by_another_is_written_before_backward() -> Made:
    return _by_two_functions, (leaf(3),), {}


def _second_order(f: Callable[..., Tensor], x: Tensor) -> Any:
    (gradient,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return gradient.detach(), torch.autograd.grad(gradient.square().sum(), x)


@program(hooks, modes=TRAIN, scenario=_second_order)
def stashed_input_has_gradients_of_gradients() -> Made:
    return Stashed.apply, (leaf(3),), {}
