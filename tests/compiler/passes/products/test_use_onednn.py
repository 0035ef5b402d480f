"""Which products of matrices go to oneDNN, and that they are the same products."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.products.use_onednn import use_onednn

LARGE = (512, 256, 128)
"""Rows, depth and columns: 2**25 operations."""


def program_of(function: object, *inputs: Tensor) -> Program:
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        return Program(make_fx(lambda *given: [function(*given)])(*fakes), Signature((), ()))  # type: ignore[operator]


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t())


def product(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.mm(x, w)


def of_transposed_rows(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.mm(x.t(), w)


def halved(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t(), beta=0.5)


def given(function: object, rows: int, depth: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(depth, rows) if function is of_transposed_rows else torch.randn(rows, depth)
    w = torch.randn(columns, depth) if function in (linear, halved) else torch.randn(depth, columns)
    return x, w, torch.randn(columns)


@pytest.mark.parametrize("function", [linear, product])
def test_use_onednn_keeps_the_product(function: object) -> None:
    inputs = given(function, *LARGE)
    program = program_of(function, *inputs)
    (before,) = program.module(*[value.double() for value in inputs])
    strides = [node.meta["val"].stride() for node in program.returned]  # type: ignore[union-attr]
    names = [node.name for node in program.returned]  # type: ignore[union-attr]
    assert use_onednn(program) == 1
    program.module.graph.lint()
    program.module.recompile()
    (after,) = program.module(*inputs)
    assert after.dtype is torch.float32 and [after.stride()] == strides
    assert [node.name for node in program.returned] == names  # type: ignore[union-attr]
    torch.testing.assert_close(after, before.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("function", [of_transposed_rows, halved])
def test_use_onednn_leaves_what_it_is_slower_or_wrong_for(function: object) -> None:
    assert use_onednn(program_of(function, *given(function, *LARGE))) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_use_onednn_leaves_other_dtypes(dtype: torch.dtype) -> None:
    assert use_onednn(program_of(linear, *(value.to(dtype) for value in given(linear, *LARGE)))) == 0


def test_use_onednn_leaves_small_products_and_a_bias_of_one_number() -> None:
    assert use_onednn(program_of(linear, *given(linear, 8, 16, 16))) == 0
    x, w, _ = given(linear, *LARGE)
    assert use_onednn(program_of(linear, x, w, torch.randn(1))) == 0


@pytest.mark.parametrize("dynamic", [False, True])
def test_use_onednn_compiled_as_eager(dynamic: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    x, again = torch.randn(256, 256, requires_grad=True), torch.randn(320, 256, requires_grad=True)
    compiled = torch.compile(module, backend="assay", dynamic=dynamic)
    for value in (x, again):
        results = [f(value) for f in (compiled, module)]
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
        gradients = [torch.autograd.grad(y.square().sum(), [value, *module.parameters()]) for y in results]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)
