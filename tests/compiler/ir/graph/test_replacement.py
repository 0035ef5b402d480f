"""One node in the place of another: what follows from how it lies is derived anew, or a check says so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.errors import VerifyError
from assay.compiler.ir.graph.replacement import above_named_offsets, differing, replace_node, verify_views

aten = torch.ops.aten


def recorded(graph: fx.Graph, mode: FakeTensorMode) -> fx.Graph:
    """The graph with a fake tensor for each node; inputs are 2 x 3 x 5."""
    with mode:
        for node in graph.nodes:
            if node.op == "placeholder":
                node.meta["val"] = torch.empty(2, 3, 5)
            elif node.op == "call_function":
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda read: read.meta["val"])
                node.meta["val"] = node.target(*args, **kwargs)
    return graph


def of_a_sum() -> tuple[fx.Graph, dict[str, fx.Node]]:
    """A sum, a view of a view of it and a number made of that; beside it a part of an input, of the sum's size."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    part = graph.call_function(aten.select.int, (x, 0, 1))
    total = graph.call_function(aten.sum.dim_IntList, (x, [0]))
    turned = graph.call_function(aten.t.default, (total,))
    row = graph.call_function(aten.select.int, (turned, 0, 2))
    graph.output([graph.call_function(aten.exp.default, (row,))])
    recorded(graph, FakeTensorMode())
    return graph, {"part": part, "total": total, "turned": turned, "row": row}


def test_replacement_derives_the_views_behind_it_anew() -> None:
    graph, nodes = of_a_sum()
    replace_node(nodes["total"], nodes["part"])
    verify_views(graph)
    assert nodes["row"].meta["val"].storage_offset() == 15 + 2
    assert nodes["row"].meta["val"].untyped_storage()._cdata == nodes["part"].meta["val"].untyped_storage()._cdata


def test_a_view_that_is_not_its_operands_is_told() -> None:
    graph, nodes = of_a_sum()
    nodes["total"].replace_all_uses_with(nodes["part"])
    with pytest.raises(VerifyError, match="offset"):
        verify_views(graph)


def test_a_view_in_other_memory_is_told() -> None:
    graph, nodes = of_a_sum()
    with nodes["total"].meta["val"].fake_mode:
        nodes["total"].meta["val"] = torch.empty(3, 5)
    with pytest.raises(VerifyError, match="memory"):
        verify_views(graph)


def test_a_view_of_no_elements_may_lie_anywhere() -> None:
    """Before torch 2.12 the fake view of nothing has memory of its own."""
    with FakeTensorMode():
        value, row = torch.empty(0, 5), torch.empty(5, 0)
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = value
    turned = graph.call_function(aten.transpose.int, (x, 0, 1))
    turned.meta["val"] = row.as_strided((5, 0), (1, 5))
    graph.output(turned)
    verify_views(graph)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda value: value.double(), "dtype"),
        (lambda value: value.new_empty(5, 3), "shape"),
        (lambda value: value.to("meta"), "device"),
    ],
)
def test_what_has_another_dtype_shape_or_device_replaces_nothing(change: object, field: str) -> None:
    _, nodes = of_a_sum()
    nodes["part"].meta["val"] = change(nodes["part"].meta["val"])  # type: ignore[operator]
    with pytest.raises(VerifyError, match=field):
        replace_node(nodes["total"], nodes["part"])


LIES = {
    "strides": lambda value: value.t().contiguous().t(),
    "offset": lambda value: value.new_empty(30)[15:].view(3, 5),
    "conj": lambda value: value.conj(),
    "neg": lambda value: value._neg_view(),
}


@pytest.mark.parametrize("field", LIES)
def test_each_field_in_which_values_may_lie_otherwise_is_compared(field: str) -> None:
    with FakeTensorMode():
        value: Tensor = torch.empty(3, 5, dtype=torch.complex64)
        assert list(differing(value, torch.empty(3, 5, dtype=torch.complex64))) == []
        assert list(differing(value, LIES[field](value))) == [field]


def test_what_a_view_that_names_its_offset_follows_from_is_found() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    turned = graph.call_function(aten.transpose.int, (x, 0, 1))
    copied = graph.call_function(aten.clone.default, (turned,))
    plain = graph.call_function(aten.exp.default, (y,))
    graph.output([graph.call_function(aten.as_strided.default, (copied, [2], [1], 3)), plain])
    assert above_named_offsets(graph) == {x, turned, copied}
