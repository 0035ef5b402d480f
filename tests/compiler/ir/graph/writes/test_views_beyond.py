"""Views by `as_strided` that leave an input: returned, they are compiled; read, one node is cut out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler import journal
from assay.compiler.entry.aot import aot_function
from assay.compiler.entry.dynamo import compile_fx_inner
from assay.compiler.errors import Unsupported


def _run(f: Callable[[Tensor], Any], **options: object) -> tuple[Any, Tensor, dict[str, Any]]:
    torch._dynamo.reset()
    journal.reset()
    base = torch.arange(24.0)
    found = torch.compile(f, backend="assay", options=options)(base[2:8])
    return found, base, dict(journal.totals())


def test_a_view_that_leaves_its_input_is_made_again_of_the_real_one() -> None:
    (view, double), base, counted = _run(lambda x: (x.as_strided((3,), (8,), 1), x * 2))
    assert counted["eager_graphs"] == counted["cuts"] == 0
    assert view.tolist() == [1, 9, 17] and double.tolist() == [4, 6, 8, 10, 12, 14]
    view.add_(100)
    assert base[[1, 9, 17]].tolist() == [101, 109, 117]


@pytest.mark.parametrize("is_dynamic", (False, True), ids=("static", "dynamic"))
@pytest.mark.parametrize("within", (torch.inference_mode, torch.enable_grad), ids=("inference", "gradients"))
def test_a_graph_ahead_of_time_may_show_one(is_dynamic: bool, within: Callable[[], Any]) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        view = x.as_strided((3,), (8,), 1)
        return view, view[1:], x * w

    compiled = aot_function(f, lambda gm, given: compile_fx_inner(gm, given), dynamic=is_dynamic, fallback="error")
    w = torch.ones(6, requires_grad=True)
    for begin in (2, 2, 3, 2):
        x = torch.arange(24.0)[begin : begin + 6]
        with within():
            found, expected = compiled(x, w), f(x, w)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)
        assert [v.data_ptr() for v in found[:2]] == [v.data_ptr() for v in expected[:2]]


def test_a_graph_that_reads_one_loses_a_node() -> None:
    found, _, counted = _run(lambda x: (x.sin().sum() + x.as_strided((3,), (8,), 1).mul(2)).cos())
    x = torch.arange(24.0)
    torch.testing.assert_close(found, (x[2:8].sin().sum() + x[1::8] * 2).cos())
    assert counted["eager_graphs"] == 0 and counted["cuts"] == 1 and sum(counted["eager"].values()) == 1


@pytest.mark.parametrize("written", (lambda x, view: x, lambda x, view: view), ids=("input", "view"))
def test_writes_to_its_memory_are_refused(written: Callable[[Tensor, Tensor], Tensor]) -> None:
    def f(x: Tensor) -> Tensor:
        view = x.as_strided((3,), (8,), 1)
        written(x, view).add_(1)
        return view

    with pytest.raises(Exception, match="may leave the tensor") as raised:
        _run(f, fallback="error")
    assert isinstance(raised.value.__cause__ or raised.value, Unsupported) or "Unsupported" in str(raised.value)


def test_a_view_that_leaves_the_storage_is_eagers_error() -> None:
    def f(x: Tensor) -> Tensor:
        return x.as_strided((3,), (80,), 1)

    with pytest.raises(RuntimeError, match="out of bounds"):
        f(torch.arange(24.0)[2:8])
    with pytest.raises(RuntimeError, match="out of bounds"):
        _run(f)
