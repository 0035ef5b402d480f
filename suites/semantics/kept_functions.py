"""Functions of the user's that Dynamo keeps as one call: leaf functions, bodies under hints, quantized bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import decorators
from torch._higher_order_ops._invoke_quant import InvokeQuant
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode

from assay.harness.case import Case, Made
from assay.suites.semantics.program import leaf, numbers, program

kept = "kept-functions"
INFER = ("infer",)


@program(kept, modes=INFER)
def function_over_each_of_two_lists() -> Made:
    def f(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Any:
        return foreach_map(torch.mul, [a, b], [c, d])

    return f, (numbers(3), numbers(4), numbers(3), numbers(4)), {}


@program(kept, modes=INFER)
def function_over_a_list_and_a_number() -> Made:
    def f(a: Tensor, b: Tensor) -> Any:
        return foreach_map(torch.add, [a.sin(), b], 2.0)

    return f, (numbers(3), numbers(4)), {}


@program(kept)
def quantized_body() -> Made:
    quantized = InvokeQuant()

    def f(a: Tensor, b: Tensor) -> Any:
        return quantized(lambda x, y: (x * y + y).sin(), a, b) * a

    return f, (leaf(3), leaf(3)), {}


@program(kept, modes=INFER)
def body_under_hints() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        return hints_wrapper(lambda x, y: (x * y).relu(), (x, y), {}, hints={"region": "one"}) + y

    return f, (numbers(3), numbers(3)), {}


@program(kept, modes=INFER)
def body_in_strict_mode() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        return strict_mode(lambda x, y: x.sin() * y, (x, y)) + 1

    return f, (numbers(3), numbers(3)), {}


@program(kept, modes=INFER)
def product_of_bytes_in_integers() -> Made:
    def f(x: Tensor, y: Tensor) -> Any:
        return out_dtype(torch.ops.aten.mm.default, torch.int32, x, y).float()

    x, y = (torch.randint(-9, 9, shape, dtype=torch.int8) for shape in ((3, 4), (4, 5)))
    return f, (x, y), {}


def _plain(x: Tensor) -> tuple[Tensor]:
    """Asks a number of its argument, which no graph holds."""
    return (x.sin() * (2 if float(x.detach().sum()) > 0 else 3),)


def _writing(x: Tensor, count: Tensor) -> tuple[Tensor]:
    count.add_(1)
    return (x * 2,)


def _of_a_module(module: nn.Module, x: Tensor) -> tuple[Tensor]:
    return (module(x).relu(),)


def _like_last(*args: Any) -> tuple[Tensor]:
    return (torch.empty_like(next(each for each in reversed(args) if isinstance(each, Tensor))),)


def _like_first(x: Tensor, *_: Tensor) -> tuple[Tensor]:
    return (torch.empty_like(x),)


class _Leaves:
    """Functions that torch takes as leaves, and whose writes it knows, from 2.13 on.

    None is in a closure: the harness copies what is there.
    """

    plain: Any
    writing: Any
    of_a_module: Any


def _declare_leaves(leaf_function: Callable[..., Any]) -> None:
    _Leaves.plain, _Leaves.of_a_module = leaf_function(_plain), leaf_function(_of_a_module)
    _Leaves.writing = leaf_function(mutates_args={"count"})(_writing)
    _Leaves.plain.register_fake(_like_last)
    _Leaves.of_a_module.register_fake(_like_last)
    _Leaves.writing.register_fake(_like_first)


def leaf_function_between_other_work() -> Made:
    def f(x: Tensor) -> Any:
        return _Leaves.plain(x * 2)[0].cos() + x

    return f, (leaf(3),), {}


def leaf_function_that_writes_its_argument() -> Made:
    def f(x: Tensor, count: Tensor) -> Any:
        return _Leaves.writing(x, count)[0] + count

    return f, (leaf(3), numbers(3)), {}


def leaf_function_of_a_module() -> Made:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            return _Leaves.of_a_module(self.inner, x)[0] * 2

    return Outer(), (leaf(2, 3),), {}


OF_LEAVES = (leaf_function_between_other_work, leaf_function_that_writes_its_argument, leaf_function_of_a_module)
CASES: list[Case] = []
LEAF_FUNCTION: Callable[..., Any] | None = getattr(decorators, "leaf_function", None)
if LEAF_FUNCTION is not None and "mutates_args" in inspect.signature(LEAF_FUNCTION).parameters:
    _declare_leaves(LEAF_FUNCTION)
    CASES += map(program(kept), OF_LEAVES)
