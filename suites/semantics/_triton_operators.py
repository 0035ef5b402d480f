"""Operators over Triton kernels that write their arguments; run by Triton's interpreter, so they need no GPU.

Those of `triton_op` have a fake kernel of their own, because torch makes one by running the operator on fake tensors,
which have no memory for the interpreter. Where a compiler traces into them, as aot_eager's does, it fails likewise.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.semantics.program import leaf, numbers, program

BLOCK = 16
operator = "triton-operator"


@triton.jit
def add_kernel(pointer: Any, amount: Any, count: Any, block: tl.constexpr) -> None:
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < count
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + amount, mask=inside)


@torch.library.custom_op("assay_semantics::triton_increment", mutates_args=("x",))
def triton_increment(x: Tensor) -> None:
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, 1.0, x.numel(), BLOCK)


@torch.library.custom_op("assay_semantics::triton_incremented", mutates_args=())
def triton_incremented(x: Tensor) -> Tensor:
    out = x.clone()
    add_kernel[(triton.cdiv(out.numel(), BLOCK),)](out, 1.0, out.numel(), BLOCK)
    return out


@triton_incremented.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@program(operator)
def triton_operator_mutates_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        triton_increment(x)
        return x * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_operator_mutates_an_intermediate_under_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        early = y[3:]
        triton_increment(y)
        return early, y * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_operator_returns_a_new_tensor() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return triton_incremented(x) * w

    return f, (numbers(20), leaf(20)), {}


@torch.library.triton_op("assay_semantics::traced_increment", mutates_args=("x",))
def traced_increment(x: Tensor) -> None:
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, 1.0, x.numel(), BLOCK)


@torch.library.triton_op("assay_semantics::traced_incremented", mutates_args=())
def traced_incremented(x: Tensor) -> Tensor:
    out = torch.empty_like(x).copy_(x)
    add_kernel[(triton.cdiv(out.numel(), BLOCK),)](out, 1.0, out.numel(), BLOCK)
    return out


@traced_increment.register_fake
def _(x: Tensor) -> None:
    return None


@traced_incremented.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@program(operator)
def triton_op_mutates_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        traced_increment(x)
        return x * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_op_mutates_a_view_of_an_input() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        traced_increment(x[3:])
        return x[2:5], x * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_op_mutates_an_intermediate_under_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        early = y[3:]
        traced_increment(y)
        return early, y * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_op_mutates_a_leaf_in_no_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            traced_increment(w)
        return x * w

    return f, (numbers(20), leaf(20)), {}


@program(operator)
def triton_op_returns_a_new_tensor() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return traced_incremented(x) * w

    return f, (numbers(20), leaf(20)), {}


CASES = [value for value in list(globals().values()) if isinstance(value, Case)]
