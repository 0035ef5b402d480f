"""Regions of `torch.utils.checkpoint` and their policies: what is kept, what is computed again, at which memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from assay.compiler.autograd.partition import Split
from assay.compiler.entry import dynamo as fx
from assay.compiler.ir.graph.roles import Program, Saved
from assay.reference.partition import peak_bytes

Function = Callable[..., Any]
region = functools.partial(checkpoint, use_reentrant=False)


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    """The splits of what is compiled in a test."""
    found: list[Split] = []
    partition = fx._partition

    def noted(*args: Any, **kwargs: Any) -> Callable[[Program], Split]:
        own = partition(*args, **kwargs)

        def cut(joint: Program) -> Split:
            found.append(own(joint))
            return found[-1]

        return cut

    monkeypatch.setattr(fx, "_partition", noted)
    torch._dynamo.reset()
    return found


def saved_by(split: Split) -> list[str]:
    """The kept values that are computed, by the operators that do."""
    pairs = zip(split.forward.signature.outputs, split.forward.returned, strict=True)
    values = [node for role, node in pairs if isinstance(role, Saved) and isinstance(node, torch.fx.Node)]
    return [str(getattr(node.target, "__name__", node.target)) for node in values if node.op == "call_function"]


def gradients(function: Function, *leaves: Tensor) -> list[Tensor | None]:
    torch.manual_seed(0)
    for leaf in leaves:
        leaf.grad = None
    function(*leaves).backward()
    return [leaf.grad for leaf in leaves]


def _dropping(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(F.gelu(F.dropout(x @ w, 0.3)) @ w.t(), 0.4)


def _drawing(function: Function, *leaves: Tensor) -> list[Tensor]:
    """Gradients of first and second order, and the number that is drawn after them."""
    torch.manual_seed(1)
    first = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in first), leaves)  # type: ignore[arg-type]
    return [*first, *second, torch.rand(3)]


def test_many_random_numbers_of_a_region_are_drawn_again(splits: list[Split]) -> None:
    """The masks are made again from the generator's state; whoever draws afterwards gets what eager would have."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        return region(_dropping, region(_dropping, x, w), w)

    leaves = [torch.randn(256, 64, requires_grad=True), torch.randn(64, 128).div_(8).requires_grad_()]
    compiled = torch.compile(function, backend="assay", dynamic=False, options={"fallback": "error"})
    for ours, eagers in zip(_drawing(compiled, *leaves), _drawing(function, *leaves), strict=True):
        torch.testing.assert_close(ours, eagers, rtol=0, atol=2e-5 * eagers.abs().max().item())
    saved = saved_by(splits[0])
    assert saved.count("generator_state.default") == 4, saved
    assert not any("bernoulli" in name for name in saved), saved


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_random_numbers_of_a_gpu_are_drawn_again(splits: list[Split]) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return region(_dropping, region(_dropping, x, w), w)

    made = torch.randn(256, 64), torch.randn(64, 128).div_(8)
    leaves = [value.cuda().requires_grad_() for value in made]
    compiled = torch.compile(function, backend="assay", dynamic=False, options={"fallback": "error"})
    for ours, eagers in zip(_drawing(compiled, *leaves), _drawing(function, *leaves), strict=True):
        torch.testing.assert_close(ours, eagers, rtol=0, atol=2e-5 * eagers.abs().max().item())
    saved = saved_by(splits[0])
    assert saved.count("reserve_numbers.default") == 1, "the seed and offsets of all four masks"
    assert not any("mask" in name or "bernoulli" in name for name in saved), saved


def inner(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(torch.sin(x @ w), 0.5).exp() @ w


def leaves(rows: int = 8, width: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, width, requires_grad=True), torch.randn(width, width).mul_(0.2).requires_grad_()


def test_region_keeps_what_enters_it_and_what_is_drawn(splits: list[Split]) -> None:
    given = leaves()
    whole = lambda x, w: region(inner, x * 2, w).sum()
    torch.testing.assert_close(gradients(torch.compile(whole, backend="assay"), *given), gradients(whole, *given))
    assert saved_by(splits[0]) == ["mul.Tensor", "bernoulli.p"], "the input, and the mask of what is dropped"


def test_policy_keeps_products(splits: list[Split]) -> None:
    def policy(_: object, operator: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        is_product = operator is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.MUST_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def chosen(x: Tensor, w: Tensor) -> Tensor:
        return region(lambda x, w: torch.sin(x @ w).exp().tanh() @ w, x * 2, w, context_fn=contexts).sum()  # type: ignore[no-any-return]

    given = leaves()
    torch.testing.assert_close(gradients(torch.compile(chosen, backend="assay"), *given), gradients(chosen, *given))
    assert saved_by(splits[0]) == ["mul.Tensor", "mm.default"]


def _always_again(_: object, operator: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    is_cheap = operator in (torch.ops.aten.mul.Tensor, torch.ops.aten.sigmoid.default, torch.ops.aten.mm.default)
    return CheckpointPolicy.MUST_RECOMPUTE if is_cheap else CheckpointPolicy.MUST_SAVE


made_again = functools.partial(create_selective_checkpoint_contexts, _always_again)


@pytest.mark.parametrize("make", [lambda w: torch.sigmoid(w * w), lambda w: (w * w) @ w], ids=["fused", "library"])
def test_parameter_that_a_region_makes_is_made_again(splits: list[Split], make: Function) -> None:
    """As those that are gathered from shards. In eager what reads it outside keeps it all the same."""

    def linear(x: Tensor, w: Tensor) -> Tensor:
        return F.linear(x, region(make, w, context_fn=made_again)).sin().sum()

    given = leaves()
    torch.testing.assert_close(gradients(torch.compile(linear, backend="assay"), *given), gradients(linear, *given))
    assert saved_by(splits[0]) == ["mm.default"], "what the sine is taken of, and no weight"


def test_value_between_two_regions_is_kept_whatever_a_policy_says(splits: list[Split]) -> None:
    """Else backward would compute all regions before it again for each of them."""

    def two(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(2):
            x = region(lambda x: torch.sigmoid(x * w), x, context_fn=made_again)
        return (x @ w).sin().sum()

    given = leaves()
    torch.testing.assert_close(gradients(torch.compile(two, backend="assay"), *given), gradients(two, *given))
    assert saved_by(splits[0]) == ["sigmoid.default", "mm.default"]


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_regions_are_computed_again_one_at_a_time(splits: list[Split], budget: float) -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return x + F.gelu(F.layer_norm(x @ w, (16,)) @ w).sin() @ w

    def stacked(wrap: Function) -> Function:
        def run(x: Tensor, w: Tensor) -> Tensor:
            for _ in range(10):
                x = wrap(layer, x, w)
            return x.square().mean()

        return run

    given = leaves(256, 16)
    peaks = []
    for wrap in (lambda f, *args: f(*args), region):
        torch._dynamo.reset()
        function = stacked(wrap)
        compiled = torch.compile(function, backend="assay", options={"memory_budget": budget})
        torch.testing.assert_close(gradients(compiled, *given), gradients(function, *given))
        peaks.append(peak_bytes(splits[-1].forward.module, splits[-1].backward.module))
    assert peaks[1] <= peaks[0] * (0.5 if budget == 1.0 else 1.0), peaks


def test_gradients_of_gradients_of_a_region() -> None:
    def whole(x: Tensor, w: Tensor) -> Tensor:
        return region(lambda x, w: torch.sin(x @ w).exp(), x, w).sum()  # type: ignore[no-any-return]

    def second(function: Function, x: Tensor, w: Tensor) -> list[Tensor]:
        slopes = torch.autograd.grad(function(x, w), (x, w), create_graph=True)
        return list(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), (x, w)))  # type: ignore[arg-type]

    x, w = leaves(4, 4)
    torch.testing.assert_close(second(torch.compile(whole, backend="assay"), x, w), second(whole, x, w))
