"""Tensors of a class with inner tensors, through the front doors: as inputs, parameters, results and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from assay.compiler import journal
from assay.compiler.capture.inputs import is_made_as
from assay.compiler.entry.aot import aot_function, aot_module_simplified
from assay.compiler.entry.dynamo import compile_fx
from assay.compiler.entry.export import aot_export_module
from assay.compiler.errors import ExportError
from assay.compiler.ir.tensors.wrappers import inner_tensors
from assay.compiler.journal import totals
from assay.suites.semantics.subclasses import Quantized


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    torch.manual_seed(0)
    yield


def two(*shape: int, requires_grad: bool = False) -> Tensor:
    return TwoTensor(torch.randn(shape), torch.randn(shape)).requires_grad_(requires_grad)


def jagged(requires_grad: bool = False) -> Tensor:
    rows = [torch.randn(length, 4) for length in (2, 3, 1)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=requires_grad)


def copied(value: Tensor) -> Tensor:
    """The same numbers in memory of their own; jagged rows have their offsets in common, which say that they fit."""
    if value.is_nested:
        made = torch.nested.nested_tensor_from_jagged(value.values().detach().clone(), value.offsets())
        return made.requires_grad_(value.requires_grad)
    return value.detach().clone().requires_grad_(value.requires_grad)


def assert_same(ours: Any, eagers: Any) -> None:
    assert type(ours) is type(eagers)
    if not isinstance(eagers, Tensor):
        assert ours == eagers
        return
    assert ours.requires_grad == eagers.requires_grad
    for one, other in zip(inner_tensors(ours), inner_tensors(eagers), strict=True):
        torch.testing.assert_close(one, other)


def check(function: Callable[..., Any], *values: Tensor, backend: str = "assay", calls: int = 2) -> None:
    """Results, inputs after the call and gradients are eager's; nothing runs in eager."""
    compiled = torch.compile(function, backend=backend)
    for _ in range(calls):
        given, own = [copied(value) for value in values], [copied(value) for value in values]
        eagers, ours = pytree.tree_leaves(function(*given)), pytree.tree_leaves(compiled(*own))
        for one, other in zip((*ours, *own), (*eagers, *given), strict=True):
            assert_same(one, other)
        for results in (eagers, ours):
            flowing = [each for each in results if each.requires_grad]
            if flowing:
                torch.autograd.backward(flowing, [torch.ones_like(each) for each in flowing])
        for one, other in zip(own, given, strict=True):
            assert_same(one.grad, other.grad)
    if backend == "assay":
        counted = totals()
        assert counted["eager_graphs"] == counted["cuts"] == 0, counted["eager"]


@pytest.mark.parametrize("backend", ["assay", "aot_eager"])  # what torch's own does is the same
def test_a_pair_with_gradients(backend: str) -> None:
    check(
        lambda x, y: ((x.sin() * y).relu(), x.sum(1)), two(3, 4, requires_grad=True), torch.randn(3, 4), backend=backend
    )


def test_pairs_of_pairs() -> None:
    check(lambda x, y: x.exp() * y, TwoTensor(two(3), two(3)).requires_grad_(), torch.randn(3, requires_grad=True))


def test_what_is_written_and_what_is_a_view() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x * 1
        z.mul_(y)
        return z.view(-1), z[1], x, x.t()

    check(f, two(3, 4, requires_grad=True), torch.randn(3, 4))


def test_a_written_input_is_written_once() -> None:
    x = two(3)
    before = x._version
    compiled = torch.compile(lambda x: x.mul_(2), backend="assay")
    assert compiled(x) is x
    assert x._version == before + 1


@pytest.mark.parametrize("requires_grad", [False, True])
def test_jagged_rows(requires_grad: bool) -> None:
    layer = nn.Linear(4, 3)
    check(lambda x: (layer(x).relu(), x.values().sin()), jagged(requires_grad))


def test_jagged_rows_padded_in_a_checkpoint() -> None:
    def padded(x: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(x, 0.5).sin()

    check(lambda x: checkpoint(padded, x, use_reentrant=False), jagged(True))


def test_jagged_rows_are_views_and_are_written() -> None:
    check(lambda x: (x.transpose(1, 2), x.unsqueeze(-1)), jagged(True))

    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    check(f, jagged())


def test_jagged_rows_made_inside() -> None:
    offsets = torch.tensor([0, 2, 5, 6])
    check(lambda v: torch.nested.nested_tensor_from_jagged(v, offsets) * 2, torch.randn(6, 4, requires_grad=True))


rows = torch.nested.nested_tensor_from_jagged
"""Jagged rows of values and offsets: to autograd a view of the values."""

MADE_OF_VALUES: dict[str, Callable[..., Any]] = {
    "returned": lambda v, o: rows(v * 2, o),
    "of_an_input": lambda v, o: rows(v, o),
    "of_copied_offsets": lambda v, o: rows(v * 2, o.clone()),
    "twice": lambda v, o: (rows(v * 3, o.clone()), rows(v * 2, o.clone())),
    "of_two_offsets": lambda v, o: (rows(v * 3, o + 0), rows(v * 2, o), rows(v * 3, o) * rows(v * 2, o)),
    "of_rows": lambda v, o: rows(rows(v.sin(), o).values(), o),
    "of_computed_offsets": lambda v, o: rows(v, torch.cat([o.new_zeros(1), o.diff().cumsum(0)])).sin(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MADE_OF_VALUES)
def test_jagged_rows_made_inside_and_returned(name: str, dynamic: bool) -> None:
    f = MADE_OF_VALUES[name]
    compiled = torch.compile(f, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    for cut in (2, 3):
        found = []
        for run in (f, compiled):
            torch.manual_seed(cut)
            values, offsets = torch.randn(6, 4, requires_grad=True), torch.tensor([0, cut, 5, 6])
            results = pytree.tree_leaves(run(values, offsets))
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
            plain = [part for each in results for part in (each.values(), each.offsets())]
            found.append([*plain, values.grad])
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_jagged_rows_fit_rows_made_of_their_offsets(dynamic: bool) -> None:
    """The offsets are an input twice: as they are, and inside of rows."""

    def f(x: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        return rows(values * 2, offsets) + x * rows(values, x.offsets())

    compiled = torch.compile(f, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    values, offsets = torch.randn(6, 4), torch.tensor([0, 2, 5, 6])
    x = rows(values, offsets)
    found = compiled(x, values, offsets)
    torch.testing.assert_close(found.values(), values * 2 + values * values)
    assert found.offsets() is offsets and found.shape == x.shape


def test_a_quantized_weight() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(Quantized.of(torch.randn(3, 4)), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.linear(x, self.weight).relu()

    layer = Layer()
    compiled, x = torch.compile(layer, backend="assay"), torch.randn(5, 4)
    assert_same(compiled(x), layer(x))
    weight: Any = layer.weight
    weight.scale = torch.rand(1, 4)  # an inner tensor of another shape is another program
    assert_same(compiled(x), layer(x))
    assert totals()["eager_graphs"] == 0


def test_a_masked_tensor_is_left_to_dynamo() -> None:
    masked = torch.masked.masked_tensor(torch.randn(3, 4), torch.arange(12).view(3, 4) % 2 == 0)
    found: Any = torch.compile(lambda x: x * 2, backend="assay")(masked)
    assert torch.equal(found.get_data(), masked.get_data() * 2)
    assert totals()["eager_graphs"] == 0


def test_inner_tensors_that_overlap_with_another_input() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    compiled, x = torch.compile(f, backend="assay"), two(3)
    compiled(x, torch.randn(3))
    inner: Any = x
    expected = inner.a * 2 + 1
    torch.testing.assert_close(compiled(x, inner.a), expected)
    assert list(totals()["eager"]) == ["an inner tensor of an input shares its memory with another input"]


def test_one_tensor_twice_inside() -> None:
    compiled, a = torch.compile(lambda x: x.mul_(2), backend="assay"), torch.ones(3)
    compiled(two(3))
    compiled(TwoTensor(a, a))
    assert torch.equal(a, torch.full((3,), 4.0))


def test_a_write_after_the_call_is_seen_by_backward() -> None:
    x = two(3, requires_grad=True)
    result = torch.compile(lambda x: x.sin(), backend="assay")(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward(two(3))


def test_gradients_of_gradients() -> None:
    x = two(3, requires_grad=True)
    cube = torch.compile(lambda x: x * x * x, backend="assay")
    (first,) = torch.autograd.grad(cube(x), x, TwoTensor(torch.ones(3), torch.ones(3)), create_graph=True)
    (second,) = torch.autograd.grad(first, x, TwoTensor(torch.ones(3), torch.ones(3)))
    assert_same(second, 6 * x.detach())


def test_some_gradients_are_missing() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, (x + y).exp()

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="assay", dynamic=dynamic)
        for place in (0, 1):
            ours, eagers = two(3, requires_grad=True), two(3, requires_grad=True)
            eagers = copied(ours)
            y = torch.randn(3)
            for x, run in ((ours, compiled), (eagers, f)):
                run(x, y)[place].backward(TwoTensor(torch.ones(3), torch.ones(3)))
            assert_same(ours.grad, eagers.grad)


# ---- the other doors


def unbuilt(graph: fx.GraphModule, inputs: Any) -> Any:
    """A caller's compiler, which is given plain tensors alone."""
    for node in graph.graph.nodes:
        assert type(node.meta.get("val")) is not TwoTensor
    return graph


@pytest.mark.parametrize("dynamic", [False, True])
def test_ahead_of_time(dynamic: bool) -> None:
    compiled = aot_function(lambda x, y: (x.sin() * y, x.sum()), unbuilt, dynamic=dynamic)
    for size in (3, 5, 3):
        x, y = two(size, requires_grad=True), torch.randn(size)
        own = copied(x)
        for results in (compiled(own, y), (x.sin() * y, x.sum())):
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
        assert_same(own.grad, x.grad)
    assert totals()["eager_graphs"] == 0


@pytest.mark.parametrize("dynamic", [False, True])
def test_jagged_rows_ahead_of_time(dynamic: bool) -> None:
    traced: list[int] = []

    def f(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        traced.append(1)
        return (x * y).sin(), z @ x.values().T, x.values()

    compiled = aot_function(f, unbuilt, dynamic=dynamic, fallback="error")
    for cut in (1, 2, 3):
        found = []
        for run in (f, compiled):
            torch.manual_seed(cut)
            values, offsets = torch.randn(6, 4, requires_grad=True), torch.tensor([0, cut, 5, 6])
            z = torch.randn(2, 4, requires_grad=True)
            results = run(rows(values, offsets), rows(values * 2, offsets), z)
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
            found.append([results[0].values(), results[0].offsets(), *results[1:], values.grad, z.grad])
        torch.testing.assert_close(found[1], found[0])
    assert len(traced) == 4, "three calls of eager, and one recording"
    with pytest.raises(RuntimeError, match="shape"):
        compiled(rows(values, offsets), rows(values, offsets + 0), z)


def test_ahead_of_time_for_another_class_and_context() -> None:
    traced: list[int] = []

    def f(x: Tensor) -> Tensor:
        traced.append(1)
        return x * 2

    compiled = aot_function(f, unbuilt)
    for value in (two(3), two(3), torch.randn(3), TwoTensor(two(3), two(3)), Quantized.of(torch.randn(3, 3))):
        assert_same(compiled(value), value * 2)
    assert len(traced) == 4  # once for each kind


def test_a_class_that_only_inherits_its_methods_is_left_to_eager() -> None:
    class Other(TwoTensor):
        pass

    value = Other(torch.ones(3), torch.ones(3))
    assert_same(aot_function(lambda x: x * 2, unbuilt)(value), value * 2)
    (reason,) = totals()["eager"]
    assert reason.endswith("Other is put together as a TwoTensor")


def test_compile_fx_and_simplified() -> None:
    run = compile_fx(fx.symbolic_trace(lambda x, y: (x * y,)), [two(3), torch.randn(3)])
    x, y = two(3), torch.randn(3)
    assert_same(run(x, y)[0], x * y)
    assert totals()["eager_graphs"] == 0
    assert_same(run(y, y)[0], y * y)
    assert totals()["eager_graphs"] == 1

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(two(3, 4))

        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x @ self.weight,)

    module = Product()
    z = torch.randn(2, 3)
    assert_same(aot_module_simplified(module, (z,), unbuilt)(z)[0], module(z)[0])


def test_export_takes_plain_tensors() -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x * 2,)

    with pytest.raises(ExportError, match="TwoTensor has inner tensors"):
        aot_export_module(Double(), [two(3)], trace_joint=False)


def test_is_made_as() -> None:
    x = two(3)
    assert is_made_as(x, two(3))
    assert not is_made_as(x, two(4))
    assert not is_made_as(x, torch.randn(3))
    assert not is_made_as(x, TwoTensor(two(3), two(3)))
    assert is_made_as(TwoTensor(two(3), two(3)), TwoTensor(two(3), two(3)))
    assert not is_made_as(x, TwoTensor(torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)))


def test_a_wrapper_is_compiled_ahead_of_time_in_inference_mode() -> None:
    x = TwoTensor(torch.ones(3, 4), torch.full((3, 4), 2.0))
    compiled = aot_function(lambda x: (x.sin(), x.exp()), lambda graph, inputs: graph)
    with torch.inference_mode():
        y, z = compiled(x)
        assert y.is_inference() and torch.equal(y.b, x.b.sin()) and torch.equal(z.a, x.a.exp())
