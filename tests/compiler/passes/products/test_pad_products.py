"""Which products of a GPU are padded, and that nothing of it can be seen but other orders of sums."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.products.pad_products import pad_products
from tests.stated_numbers import state

M, K, N = 2048, 256, 1003
PASS = "assay.compiler.passes.products.pad_products"
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def program_of(function: Callable[..., Tensor], *inputs: Tensor) -> Program:
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        return Program(make_fx(lambda *given: [function(*given)])(*fakes), Signature((), ()))


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[PASS], "DEVICE", "cpu")
    state(monkeypatch, padding_gain_ns=0)


def forward(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return x @ w.t()


def with_bias(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t())


def of_x(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return (g * 2) @ w


def of_w(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return (g * 2).t() @ x


def of_w_odd(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    """Rows and the sum's length off 8 both."""
    return (g[:2045] * 2).t() @ x[:2045]


def of_both(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    h = g * 2
    return (h @ w).sum() + (h.permute(1, 0) @ x).sum()


def given(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w, b, g = (torch.randint(-3, 4, size).to(dtype) for size in ((M, K), (N, K), (N,), (M, N)))
    return x, w, b, g  # small integers, whose sums round nowhere on the way


@pytest.mark.parametrize(("function", "count", "pads"), [
    (forward, 1, 1), (with_bias, 1, 2), (of_x, 1, 2), (of_w, 1, 1), (of_w_odd, 1, 3), (of_both, 2, 2),
])  # fmt: skip
def test_pad_products_keeps_values_and_strides(function: Callable[..., Tensor], count: int, pads: int) -> None:
    inputs = given()
    program = program_of(function, *inputs)
    (want,) = program.module(*inputs)
    strides = [node.meta["val"].stride() for node in program.returned]  # type: ignore[union-attr]
    assert pad_products(program) == count
    program.module.graph.lint()
    program.module.recompile()
    (got,) = program.module(*inputs)
    assert torch.equal(got, want) and [got.stride()] == strides
    found = program.module.graph.find_nodes(op="call_function", target=torch.ops.aten.constant_pad_nd.default)
    assert len(found) == pads
    products = [
        node
        for node in program.module.graph.nodes
        if node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    ]
    for node in products:
        left, right = (read.meta["val"] for read in node.args[-2:])
        assert left.shape[1] % 8 == 0 and all(min(v.stride()) == 1 and max(v.stride()) % 8 == 0 for v in (left, right))


def aligned(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return x @ w[:1000].t()


def scaled(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t(), beta=2)


def small(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
    return x[:2] @ w.t()


@pytest.mark.parametrize("function", [aligned, scaled, small])
def test_pad_products_leaves(function: Callable[..., Tensor]) -> None:
    assert pad_products(program_of(function, *given())) == 0


def test_pad_products_leaves_other_devices_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pad_products(program_of(forward, *given(torch.float32))) == 0
    monkeypatch.setattr(sys.modules[PASS], "DEVICE", "cuda")
    assert pad_products(program_of(forward, *given())) == 0
