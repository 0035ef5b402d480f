"""Backward where nothing flows back to some of the results: what eager computes, and nothing read that it does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.aot import aot_function
from assay.compiler.entry.dynamo import assay
from assay.compiler.runtime import partial_backward

SUBSETS = [set(chosen) for count in (1, 2, 3) for chosen in itertools.combinations(range(4), count)]


def four_results(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    product, wave = x * w, (x + v).sin()
    return product, wave, torch.cat([product[:1], wave]), torch.where(v > 0, x * 2, v)


def infinite() -> list[Tensor]:
    x, w, v = (torch.linspace(-1, 1, 5).roll(shift) for shift in range(3))
    w[0] = float("inf")
    return [value.requires_grad_() for value in (x, w, v)]


def gradients(function: Callable[..., Any], used: set[int]) -> list[Tensor | None]:
    inputs = infinite()
    results = function(*inputs)
    sum(results[index].sum() for index in used).backward()
    return [value.grad for value in inputs]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["cpp", "aten"])
def test_gradients_of_each_set_of_results_are_eagers(target: str, dynamic: bool) -> None:
    compiled = torch.compile(four_results, backend=assay, dynamic=dynamic, options={"target": target})
    for used in SUBSETS:
        ours, eagers = gradients(compiled, used), gradients(four_results, used)
        torch.testing.assert_close(ours, eagers, equal_nan=True, msg=lambda text, used=used: f"{used}: {text}")


def test_what_follows_from_missing_gradients_alone_is_not_computed() -> None:
    graphs = []

    def note(gm: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append([node.name for node in gm.graph.nodes if node.op == "placeholder"])
        return gm.forward

    def two(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * w.exp(), x * 2

    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    aot_function(two, note)(x, w)[1].sum().backward()
    forward, backward = graphs
    assert len(forward) == 2 and backward == ["tangents_2"]


def test_sets_of_results_beyond_the_limit_count_the_others_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_backward, "LIMIT", 1)
    compiled = torch.compile(lambda *xs: [x.sin() for x in xs], backend=assay)
    for used in range(3):
        inputs = [torch.ones(3, requires_grad=True) for _ in range(3)]
        compiled(*inputs)[used].sum().backward()
        found = [None if value.grad is None else value.grad.tolist() for value in inputs]
        assert found == [[pytest.approx(torch.ones(()).cos().item())] * 3 if i == used else None for i in range(3)]


def test_saved_tensor_written_since_matters_where_it_is_needed() -> None:
    compiled = torch.compile(lambda x, w: (x.sin(), w.sin()), backend=assay)
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for used in (0, 1):
        results = compiled(x, w)
        with torch.no_grad():
            x.add_(1)
        if used:
            results[1].sum().backward()
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                results[0].sum().backward()
    assert x.grad is None and w.grad is not None
