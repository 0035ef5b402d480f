"""Regions that are called from several places: compiled once each, eager's values and gradients."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.compiler import nested_compile_region

from assay.compiler import journal
from assay.compiler.entry.ahead.partition_functions import PARTITIONERS, default_partition
from assay.compiler.entry.pieces import regions

NestedCompileRegionOptions = getattr(
    importlib.import_module("torch._higher_order_ops.invoke_subgraph"), "NestedCompileRegionOptions", None
)


@nested_compile_region
def call(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)  # type: ignore[no-any-return]


@nested_compile_region
def mixed(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w) + x


class Layers(nn.Module):
    """A norm and a linear layer, so many times."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = call(layer, x) + x
        return x


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    yield


def totals() -> dict[str, Any]:
    return dict(journal.totals())


def compiles_of(layers: int, train: bool) -> tuple[int, int]:
    """The compiles of a model with so many layers, and their kernels."""
    torch._dynamo.reset()
    journal.reset()
    model, x = Layers(layers).double(), torch.randn(2, 4, dtype=torch.float64)
    with torch.set_grad_enabled(train):
        found, expected = torch.compile(model, backend="assay", options={"warm": False})(x), model(x)
    torch.testing.assert_close(found, expected)
    if train:
        check_gradients(found, expected, list(model.parameters()))
    assert totals()["eager_graphs"] == totals()["cuts"] == 0
    return totals()["compiles"], totals()["nodes"]


def check_gradients(found: Tensor, expected: Tensor, wanted: list[Tensor]) -> None:
    ours = torch.autograd.grad(found.square().sum(), wanted)
    theirs = torch.autograd.grad(expected.square().sum(), wanted)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("train", [False, True])
def test_a_region_is_compiled_once_however_many_layers_call_it(train: bool) -> None:
    few, many = compiles_of(4, train), compiles_of(12, train)
    assert few == many


def test_another_layout_and_another_dtype_are_compiled_once_more() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = mixed(mixed(mixed(x, w), w), w)
        return y + mixed(mixed(x.t(), w), w)

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    torch.testing.assert_close(torch.compile(f, backend="assay")(x, w), f(x, w))
    pieces = totals()["pieces"]
    assert totals()["eager_graphs"] == totals()["cuts"] == 0
    torch.compile(lambda x, w: f(x, w) * 2, backend="assay")(x, w)
    assert totals()["pieces"] <= 2 * pieces <= 10


def test_a_region_that_is_called_once_is_recorded_with_what_stands_around_it() -> None:
    torch.compile(lambda x, w: mixed(x.sin(), w).cos(), backend="assay")(torch.randn(3, 3), torch.randn(3, 3))
    assert totals()["compiles"] == 1 and totals()["pieces"] == 0


def test_sizes_that_change_make_no_compile_each() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return mixed(mixed(x, w), w).sum()

    compiled, w = torch.compile(f, backend="assay", dynamic=True), torch.randn(3, 3)
    for n in (4, 5, 6, 7, 8):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, w), f(x, w))
    assert totals()["compiles"] <= 4 and totals()["eager_graphs"] == 0


@pytest.mark.parametrize("region", ["computed size", "autocast"])
def test_what_cannot_be_divided_is_recorded_as_a_whole(region: str) -> None:
    def sized(x: Tensor, w: Tensor) -> Tensor:
        return mixed(mixed(x[x.sum(1) > 0], w), w)

    def cast(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mixed(mixed(x, w), w)

    f = sized if region == "computed size" else cast
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.compile(f, backend="assay")(torch.randn(8, 3), torch.randn(3, 3))
    assert totals()["pieces"] == totals()["eager_graphs"] == totals()["cuts"] == 0


def test_draws_of_regions_are_in_eagers_order() -> None:
    @nested_compile_region
    def dropped(x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True)

    def f(x: Tensor) -> Tensor:
        return dropped(dropped(x) * torch.rand_like(x))

    x = torch.randn(16)
    torch.manual_seed(3)
    found, after = torch.compile(f, backend="assay")(x), torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(found, f(x)) and torch.equal(after, torch.rand(1))


def test_hooks_run_between_the_backwards_of_regions() -> None:
    """A region is a node of autograd, so backward calls them in reverse order, once each."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return mixed(mixed(mixed(x, w), w), w)

    y = torch.compile(f, backend="assay")(torch.randn(3, 3, requires_grad=True), torch.randn(3, 3))
    nodes, node = [], y.grad_fn
    while node is not None and not hasattr(node, "variable"):
        nodes.append(node)
        node = node.next_functions[0][0]
    assert len(nodes) == 3


def asked(partitioner: object) -> Callable[[Tensor, Tensor], Tensor]:
    """A function with one region, which names its partitioner."""
    assert NestedCompileRegionOptions is not None
    with torch._dynamo.config.patch(enable_invoke_subgraph_regional_compile=True):
        options = NestedCompileRegionOptions(partitioner=partitioner)
        region = nested_compile_region(lambda x, w: torch.tanh(x @ w) + x, options=options)
    return lambda x, w: region(x, w)


@pytest.mark.skipif(NestedCompileRegionOptions is None, reason="this torch has no options of regions")
@pytest.mark.parametrize("partitioner", ["default_partition", "min_cut_rematerialization_partition"])
def test_a_region_names_its_partitioner(partitioner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []
    split_by = regions.split_by
    monkeypatch.setattr(
        regions, "split_by", lambda function, number: used.append(function) or split_by(function, number)
    )
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    f = asked(partitioner)
    check_gradients(torch.compile(f, backend="assay")(x, w), f(x, w), [x, w])
    assert set(used) == {PARTITIONERS[partitioner]}


@pytest.mark.skipif(NestedCompileRegionOptions is None, reason="this torch has no options of regions")
def test_a_region_has_a_partitioner_of_its_users() -> None:
    calls = []

    def partitioner(joint: torch.fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **more: object) -> Any:
        calls.append(num_fwd_outputs)
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    f = asked(partitioner)
    check_gradients(torch.compile(f, backend="assay")(x, w), f(x, w), [x, w])
    assert calls == [1]


@pytest.mark.skipif(NestedCompileRegionOptions is None, reason="this torch has no options of regions")
def test_a_partitioner_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(Exception, match="partitioner is 'best'; it takes one of"):
        torch.compile(asked("best"), backend="assay")(torch.randn(3, 3, requires_grad=True), torch.randn(3, 3))


def test_equal_graphs_have_one_text() -> None:
    def text(f: Callable[..., Any]) -> str:
        return regions.text_of(torch.fx.symbolic_trace(f))

    assert text(lambda x, y: x + y * 2) == text(lambda a, b: a + b * 2)
    others = [lambda x, y: y + x * 2, lambda x, y: x - y * 2, lambda x, y: x + y * 2.0, lambda x, y: x + y.mul(2)]
    assert len({text(f) for f in [lambda x, y: x + y * 2, *others]}) == 5
