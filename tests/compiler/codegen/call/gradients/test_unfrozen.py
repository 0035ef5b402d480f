"""A tensor that is another than when its call was compiled, where Dynamo does not look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from assay.compiler.entry.dynamo import assay
from assay.compiler.runtime import specialize


def unguarded(model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., Any], list[Tensor]]:
    """What the backend made of a frozen model, which calls of it do not go through Dynamo to; and its arguments."""
    monkeypatch.setattr("assay.compiler.entry.graph_as_call.is_guarded", lambda source: False)
    made: list[Any] = []

    def backend(gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
        made.append((assay(gm, inputs), list(inputs)))
        return made[-1][0]  # type: ignore[no-any-return]

    torch.compile(model.requires_grad_(False), backend=backend)(x)
    ((run, inputs),) = made
    return run, [next(p for p in [*model.parameters(), x] if p.shape == given.shape) for given in inputs]


def test_unfrozen_parameters_get_gradients_and_frozen_ones_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), torch.randn(5, 4)
    run, inputs = unguarded(model, x, monkeypatch)
    parameters = list(model.parameters())
    for unfrozen in ((), (3,), (2, 3), (0, 1, 2, 3), (0,), ()):
        for index, parameter in enumerate(parameters):
            parameter.grad = None
            parameter.requires_grad_(index in unfrozen)
        (y,) = run(*inputs)
        assert y.requires_grad is bool(unfrozen)
        if unfrozen:
            y.square().sum().backward()
            wanted = torch.autograd.grad(model(x).square().sum(), [parameters[index] for index in unfrozen])
            assert [i for i, p in enumerate(parameters) if p.grad is not None] == list(unfrozen)
            torch.testing.assert_close([parameters[index].grad for index in unfrozen], list(wanted))


def test_unfrozen_in_more_ways_than_are_kept_is_eagers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialize, "LIMIT", 1)
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    run, inputs = unguarded(model, x, monkeypatch)
    for name in ("weight", "bias"):
        parameter = getattr(model.requires_grad_(False), name).requires_grad_(True)
        run(*inputs)[0].sum().backward()
        torch.testing.assert_close(parameter.grad, torch.autograd.grad(model(x).sum(), [parameter])[0])


def _transposed(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.t().contiguous().t() if parameter.dim() == 2 else parameter.data


def _doubled(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = torch.cat([parameter.data, parameter.data])


@pytest.mark.parametrize("change", [nn.Module.double, _transposed, _doubled], ids=["double", "transposed", "doubled"])
def test_parameters_of_another_kind_are_noticed(
    change: Callable[[nn.Module], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels would read them as what they were: numbers of half the width, or memory that is not theirs."""
    model, index = nn.EmbeddingBag(6, 4, mode="sum"), torch.tensor([[0, 5, 1], [2, 2, 3]])
    run, inputs = unguarded(nn.Sequential(model, nn.Tanh()), index, monkeypatch)
    for _ in range(2):
        torch.testing.assert_close(run(*inputs)[0], model(index).tanh())
    change(model)
    for _ in range(2):
        (y,) = run(*inputs)
        wanted = model(index).tanh()
        assert (y.dtype, y.stride()) == (wanted.dtype, wanted.stride())
        torch.testing.assert_close(y, wanted)


@pytest.mark.parametrize("is_needed", [False, True])
def test_versions_noted_for_a_torch_that_unpacks_all_or_none(is_needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.compiler.codegen.call.gradients.forward_half.BEFORE_2_13", True)
    monkeypatch.setattr("assay.compiler.runtime.saved_values.unpacked", lambda saved: pytest.fail("versions are noted"))
    compiled = torch.compile(lambda x, w: (x.sin(), w.sin()), backend=assay, options={"warm": False})
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    results = compiled(x, w)
    with torch.no_grad():
        x.add_(1)
    if is_needed:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            results[0].sum().backward()
    else:
        results[1].sum().backward()
        torch.testing.assert_close(w.grad, torch.ones(3).cos())
