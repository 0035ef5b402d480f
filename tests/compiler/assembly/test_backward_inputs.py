"""Tensors without memory of their own, or other than expected, reach no kernel: as tangents, inputs, saved tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.assembly import halves
from assay.compiler.entry.aot import aot_function, aot_module_simplified
from assay.compiler.entry.dynamo import compile_fx, compile_fx_inner
from assay.compiler.errors import AssayError

Made = Callable[[Tensor], Tensor]


class Plain(torch.Tensor):
    """A subclass that is a tensor with memory."""


def fake(value: Tensor) -> Tensor:
    with FakeTensorMode():
        return torch.ones(value.shape)


HOSTILE: dict[str, Made] = {
    "zeros without memory": lambda t: torch._efficientzerotensor(t.shape),
    "sparse": lambda t: t.to_sparse(),
    "sparse rows": lambda t: t.to_sparse_csr(),
    "fake": fake,
    "meta": lambda t: torch.ones(t.shape, device="meta"),
    "subclass": lambda t: t.as_subclass(Plain),
    "subclass of two": lambda t: TwoTensor(t, t * 2),
    "onednn": lambda t: t.to_mkldnn(),
    "negated": torch._neg_view,
    "doubles": lambda t: t.double(),
    "expanded": lambda t: t.flatten()[0].expand(t.shape),
    "transposed": lambda t: t.t().contiguous().t(),
    "of another size": lambda t: t[:1],
}

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "one result": lambda x, w: ((x * w).sin(),),
    "two results": lambda x, w: (x * w, (x + w).exp()),
    "a product": lambda x, w: (torch.relu(x @ w),),
    "a view": lambda x, w: ((x * w).t(), x.view(-1)),
}


def leaves() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)


def outcome(run: Callable[[], Any]) -> Any:
    """What a run returns, each tensor in words; or the class of its error."""
    try:
        return [described(value) for value in run()]
    except Exception as error:
        return type(error)


def described(value: Tensor | None) -> object:
    if value is None or type(value) not in (Tensor, torch.nn.Parameter) or value.device.type != "cpu":
        return type(value), str(getattr(value, "shape", None))
    dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach() + 0
    return value.layout, [round(number, 4) for number in dense.flatten().tolist()]


def gradients(function: Any, make: Made, count: int) -> list[Tensor | None]:
    """The gradients where the first `count` results have tangents that `make` makes."""
    x, w = leaves()
    results = function(x, w)[:count]
    torch.autograd.backward(results, [make(torch.ones(y.shape)) for y in results])
    return [x.grad, w.grad]


@pytest.mark.parametrize("kind", HOSTILE)
def test_backward_takes_any_tangent_as_eager_does(kind: str) -> None:
    for name, function in FUNCTIONS.items():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="assay")
        for count in (2, 1):
            for make in (HOSTILE[kind], lambda t: t, HOSTILE[kind]):
                wanted = outcome(lambda: gradients(function, make, count))  # noqa: B023
                got = outcome(lambda: gradients(compiled, make, count))  # noqa: B023
                assert wanted == got, (name, count)


@pytest.mark.parametrize("kind", HOSTILE)
def test_call_takes_any_later_input_as_eager_does(kind: str) -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).cos()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="assay")
    for make in (lambda t: t, HOSTILE[kind], lambda t: t):
        x = make(torch.ones(3, 3))
        assert outcome(lambda: [function(x)]) == outcome(lambda: [compiled(x)])  # noqa: B023


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.t().contiguous().t(),
    "smaller": lambda t: torch.ones(1),
    "doubles": lambda t: t.double(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_backward_notices_other_data_behind_an_input(change: str, dynamic: bool) -> None:
    def run(function: Any) -> list[Tensor | None]:
        x, w = leaves()
        (y,) = function(x, w)
        x.data = CHANGES[change](x.data)
        y.sum().backward()
        return [x.grad, w.grad]

    torch._dynamo.reset()
    function = FUNCTIONS["one result"]
    compiled = torch.compile(function, backend="assay", dynamic=dynamic)
    assert outcome(lambda: run(function)) == outcome(lambda: run(compiled))


UNPACKED: dict[str, Made] = {
    "transposed": HOSTILE["transposed"],
    "doubles": lambda t: t.double(),
    "negated": torch._neg_view,
    "zeros without memory": HOSTILE["zeros without memory"],
    "one row": lambda t: t[:1],
}


@pytest.mark.parametrize("kind", UNPACKED)
def test_backward_takes_whatever_hooks_unpack_as_eager_does(kind: str) -> None:
    def run(function: Any) -> list[Tensor | None]:
        x, w = leaves()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, UNPACKED[kind]):
            (y,) = function(x, w)
        y.sum().backward()
        return [x.grad, w.grad]

    torch._dynamo.reset()
    function = FUNCTIONS["one result"]
    compiled = torch.compile(function, backend="assay", dynamic=False)
    assert outcome(lambda: run(function)) == outcome(lambda: run(compiled))


def test_backward_of_plain_tangents_is_not_run_operator_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks let ordinary calls through; hostile ones show that the test would notice."""
    ran: list[str] = []
    by_operators = halves.by_operators
    monkeypatch.setattr(halves, "by_operators", lambda program: ran.append("made") or by_operators(program))
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS["two results"], backend="assay", options={"warm": False})
    for make in (lambda t: t, HOSTILE["doubles"], HOSTILE["negated"], HOSTILE["transposed"], HOSTILE["subclass"]):
        gradients(compiled, make, 2)
        gradients(compiled, make, 1)
    assert not ran
    gradients(compiled, HOSTILE["zeros without memory"], 2)
    assert ran


def _compiled_by_fx(function: Any, x: Tensor) -> Any:
    return compile_fx(torch.fx.symbolic_trace(function), [x])


def _compiled_inner(function: Any, x: Tensor) -> Any:
    run = compile_fx_inner(make_fx(function, tracing_mode="fake")(x), [x])
    return lambda *args: run(list(args))


def _compiled_simplified(function: Any, x: Tensor) -> Any:
    return aot_module_simplified(torch.fx.symbolic_trace(function), (x,), fw_compiler=_inner)


def _compiled_function(function: Any, x: Tensor) -> Any:
    return aot_function(function, fw_compiler=_inner)


def _inner(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return compile_fx_inner(graph, inputs)


@pytest.mark.parametrize("kind", sorted(HOSTILE.keys() - {"subclass"}))  # of which the numbers are taken
@pytest.mark.parametrize("door", [_compiled_by_fx, _compiled_inner, _compiled_simplified, _compiled_function])
def test_doors_refuse_or_take_what_they_were_not_compiled_for(door: Callable[..., Any], kind: str) -> None:
    """Called with another kind of tensor than it was compiled for, a call is as eager, or an error; never something
    else, nor the end of the process."""

    def function(x: Tensor) -> tuple[Tensor]:
        return ((x * 2 + 1).cos(),)

    with torch.no_grad():
        compiled = door(function, torch.ones(3, 3))
        compiled(torch.ones(3, 3))
        got = outcome(lambda: compiled(HOSTILE[kind](torch.ones(3, 3))))
        is_refused = isinstance(got, type) and issubclass(got, (RuntimeError, AssayError))
        assert is_refused or got == outcome(lambda: function(HOSTILE[kind](torch.ones(3, 3))))


@pytest.mark.parametrize("kind", ["zeros without memory", "sparse", "negated", "transposed"])
def test_second_backward_takes_any_tangent_as_eager_does(kind: str) -> None:
    def run(function: Any) -> list[Tensor | None]:
        x, w = leaves()
        (y,) = function(x, w)
        (first,) = torch.autograd.grad(y, x, HOSTILE[kind](torch.ones(3, 3)), create_graph=True)
        return list(torch.autograd.grad(first, w, HOSTILE[kind](torch.ones(3, 3))))

    torch._dynamo.reset()
    function = FUNCTIONS["one result"]
    assert outcome(lambda: run(function)) == outcome(lambda: run(torch.compile(function, backend="assay")))
