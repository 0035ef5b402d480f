"""Graphs that inference mode makes other ones of, and results that are made in another mode than that of the call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.utils.checkpoint import checkpoint

from assay.compiler.entry import graph_as_call
from assay.compiler.entry.inference_calls import depends_on_inference


def _with_gradients(x: Tensor, w: Tensor) -> Tensor:
    with torch.enable_grad():
        return x * w


def _through_data(x: Tensor, w: Tensor) -> Tensor:
    x.data.add_(1)
    return x * w


def _by_transform(x: Tensor, w: Tensor) -> Tensor:
    return torch.func.grad(lambda each: (each * w).sum())(x)


def _within(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(_with_gradients, x, w, use_reentrant=False)


CHANGED = (_with_gradients, _through_data, _by_transform, _within)
UNCHANGED = (lambda x, w: x * w, lambda x, w: x.detach().mul_(w), lambda x, w: (x + w)[1:].t())


def _graph_of(f: Callable[[Tensor, Tensor], Tensor]) -> fx.GraphModule:
    torch._dynamo.reset()
    seen: list[fx.GraphModule] = []

    def noted(gm: fx.GraphModule, inputs: object) -> fx.GraphModule:
        seen.append(gm)
        return gm

    with torch.no_grad():
        torch.compile(f, backend=noted)(torch.ones(2, 2), torch.ones(2, 2))
    return seen[0]


@pytest.mark.parametrize("f", CHANGED)
def test_entry_knows_the_graphs_that_inference_mode_changes(f: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert depends_on_inference(_graph_of(f))


@pytest.mark.parametrize("f", UNCHANGED)
def test_entry_compiles_other_graphs_once(f: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert not depends_on_inference(_graph_of(f))


def _facts(value: Tensor) -> tuple[object, ...]:
    return value.is_inference(), value.requires_grad, value.is_leaf, value._is_view(), value.tolist()


@pytest.mark.parametrize("f", CHANGED)
def test_entry_gives_results_of_eager_inside_and_outside_of_inference_mode(
    f: Callable[[Tensor, Tensor], Tensor],
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay", options={"fallback": "error"})
    for size in (2, 3, 4, 2):
        for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
            made = [torch.arange(2.0 * size).view(size, 2) for _ in range(2)]
            ours, eagers = (_called(function, mode, made[0].clone(), made[1].clone()) for function in (compiled, f))
            assert ours == eagers, (size, mode)


def _called(f: Callable[..., Tensor], mode: Callable[[], object], x: Tensor, w: Tensor) -> tuple[object, ...]:
    w.requires_grad_()
    with mode():  # type: ignore[attr-defined]
        return *_facts(f(x, w)), x._version


def test_codegen_makes_each_output_in_its_own_inference_mode() -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.inference_mode():
            y = x + 1
        return y, x * 2, x * w

    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    results = torch.compile(f, backend="assay", options={"fallback": "error"})(x, w)
    assert [result.is_inference() for result in results] == [True, False, False]
    results[2].sum().backward()
    assert w.grad is not None


def test_gradients_inside_are_inference_tensors_where_eagers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.13 those of torch.func are, in inference mode."""
    monkeypatch.setattr(graph_as_call, "_makes_inference_tensors", lambda: True)

    def pulled(x: Tensor) -> Tensor:
        found: Tensor = torch.func.vjp(torch.sin, x)[1](x)[0]
        return found

    with torch.inference_mode():
        x = torch.ones(3)
        given = torch.compile(pulled, backend="assay", options={"fallback": "error"})(x)
    assert given.is_inference()
    torch.testing.assert_close(given, x.cos())
