"""Kernels print, parse and are checked; the reference runs what they mean."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import pytest
import torch

from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import (
    Bind,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Element,
    Expr,
    Kernel,
    Load,
    Loop,
    Reduce,
    Store,
)
from assay.compiler.ir.loops.text import parse, show
from assay.compiler.ir.loops.verify import verify
from assay.reference.loops import run_kernel

f32, i0, i1, r0 = torch.float32, Symbol("i0"), Symbol("i1"), Symbol("r0_0")


def softmax(rows: int, columns: int) -> Kernel:
    def at(column: Symbol) -> Expr:
        return Load("in0", i0 * columns + column, f32)

    inner = (Loop("r0_0", Int(columns)),)
    outer = (Loop("r1_0", Int(columns)),)
    peak = Reduce("max", inner, at(r0), f32)
    total = Reduce("sum", outer, Call("exp", (Call("sub", (at(Symbol("r1_0")), peak), f32),), f32), f32)
    top = Call("exp", (Call("sub", (at(i1), peak), f32),), f32)
    store = Store("out0", i0 * columns + i1, Call("div", (top, total), f32), "write")
    buffers = (Buffer("in0", f32, Int(rows * columns)), Buffer("out0", f32, Int(rows * columns)))
    loops = (Loop("i0", Int(rows)), Loop("i1", Int(columns)))
    return Kernel("kernel_0", loops, (store,), buffers, (), ("_softmax",))


def test_reference_runs_a_row_softmax() -> None:
    x, y = torch.randn(3, 5), torch.empty(15)
    run_kernel(softmax(3, 5), [x.flatten(), y], [])
    torch.testing.assert_close(y.view(3, 5), x.softmax(1))


def test_kernel_text_round_trip() -> None:
    kernel = softmax(3, 5)
    verify(kernel)
    assert parse(show(kernel)) == kernel


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -2.5, 3.0])
def test_constant_text_round_trip(value: float) -> None:
    kernel = softmax(2, 2)
    stored = dataclasses.replace(kernel.stores[0], expr=Const(value, f32))
    parsed = parse(show(dataclasses.replace(kernel, stores=(stored,))))
    assert repr(parsed.stores[0].expr) == repr(Const(value, f32))


def test_expressions_are_interned_but_constants_stay_apart() -> None:
    assert Const(0.0, f32) is not Const(-0.0, f32)
    assert Const(1, torch.int64) is not Const(True, torch.int64)
    expr = softmax(2, 3).stores[0].expr
    assert softmax(2, 3).stores[0].expr is expr
    assert copy.deepcopy(expr) is expr
    assert pickle.loads(pickle.dumps(expr)) is expr


def test_parse_rejects_other_text() -> None:
    with pytest.raises(ValueError, match="not a kernel"):
        parse("def kernel(): pass")


ONE = Const(1.0, f32)
BROKEN: dict[str, tuple[Expr, str]] = {
    "unbound variable": (Load("in0", Symbol("k"), f32), "k in an index is not bound"),
    "variable of another reduction": (Load("in0", r0, f32), "r0_0 in an index is not bound"),
    "unknown buffer": (Load("in9", i0, f32), "in9, which is no argument"),
    "load beside a store": (Load("out0", i0 + 1, f32), "another index"),
    "dtype of the store": (Const(1, torch.int64), "stores torch.int64"),
    "storage arithmetic": (
        Cast(Call("neg", (Const(1.0, torch.bfloat16),), torch.bfloat16), f32),
        "computes in torch.bfloat16",
    ),
    "mixed operands": (Call("add", (Const(1.0, f32), Const(1, torch.int64)), f32), "operands of"),
    "element": (Element("x", (i0,), f32), "has no layout"),
    "variable outside its binding": (
        Bind(
            Loop("b0", Int(2)), Call("neg", (Cast(Load("in0", Symbol("b0"), f32), torch.int64),), torch.int64), ONE, f32
        ),
        "b0 in an index is not bound",
    ),
    "position of another dtype": (Bind(Loop("b0", Int(2)), ONE, ONE, f32), "a position of torch.float32"),
    "check of an unknown failure": (Check(ONE, Const(True, torch.bool), "whim", f32), "fails with 'whim'"),
    "check of a number": (Check(ONE, ONE, "index", f32), "a check of torch.float32"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_verify_names_the_broken_rule(name: str) -> None:
    expr, message = BROKEN[name]
    kernel = softmax(2, 2)
    stored = dataclasses.replace(kernel.stores[0], expr=expr)
    with pytest.raises(VerifyError, match=message):
        verify(dataclasses.replace(kernel, stores=(stored,)))
