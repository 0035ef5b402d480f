"""`assay.harness.bench.steps`: what one timed step does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.bench import steps
from assay.harness.calls.clone import Call
from assay.harness.case import Made, case


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def test_inference_step_records_no_gradient() -> None:
    module = nn.Linear(3, 2)
    step = steps.inference_step(Call(module, (torch.ones(1, 3),), {}), plain)
    output = step()
    assert isinstance(output, Tensor) and not output.requires_grad


def test_training_step_computes_gradients_and_drops_them() -> None:
    module = nn.Linear(3, 2)
    x = torch.ones(1, 3, requires_grad=True)
    reached: list[Tensor] = []
    for leaf in (*module.parameters(), x):
        leaf.register_post_accumulate_grad_hook(lambda leaf: reached.append(leaf.grad.clone()))  # type: ignore[union-attr]
    step = steps.training_step(Call(module, (x,), {}), plain, seed=0)
    step()
    step()
    assert len(reached) == 6
    assert all(
        torch.equal(first, second)
        for first, second in zip(sorted_by_size(reached[:3]), sorted_by_size(reached[3:]), strict=True)
    )
    assert all(leaf.grad is None for leaf in (*module.parameters(), x))


def sorted_by_size(gradients: list[Tensor]) -> list[Tensor]:
    return sorted(gradients, key=Tensor.numel)


def test_training_step_finds_leaves_that_only_a_closure_holds() -> None:
    weight = torch.ones(3, requires_grad=True)
    step = steps.training_step(Call(lambda x: x * weight, (torch.ones(3),), {}), plain, seed=0)
    step()
    assert weight.grad is None
    (leaf,) = steps.leaves_behind([weight * 2])
    assert leaf is weight


def test_leaves_are_found_once_in_a_graph_that_shares_nodes() -> None:
    weight = torch.ones(3, requires_grad=True)
    shared = weight * 2
    for _ in range(30):
        shared = shared + shared
    assert [id(leaf) for leaf in steps.leaves_behind([shared, shared.sum()])] == [id(weight)]


def test_training_step_prefers_the_loss() -> None:
    class Output:
        def __init__(self, loss: Tensor, logits: Tensor) -> None:
            self.loss, self.logits = loss, logits

    loss = torch.ones((), requires_grad=True) * 2
    assert steps.differentiable(Output(loss, loss.expand(3))) == [loss]


def test_differentiable_looks_into_containers_and_skips_what_has_no_gradient() -> None:
    a = torch.ones(2, requires_grad=True) * 2
    assert steps.differentiable({"a": (a, None, 3), "b": [torch.ones(2)]}) == [a]
    assert steps.differentiable(torch.ones(2)) == []


def test_training_without_anything_to_train_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="declare the case as infer only"):
        steps.training_step(Call(lambda x: x + 1, (torch.ones(2),), {}), plain, seed=0)


def test_make_step_is_the_same_program_for_the_same_seed() -> None:
    @case(modes=("infer",))
    def random_module() -> Made:
        return nn.Linear(3, 2), (torch.randn(4, 3),), {}

    def made(seed: int) -> Any:
        return steps.make_step(random_module, "infer", plain, size="tiny", seed=seed, device="cpu")()

    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))


@pytest.mark.parametrize(("mode", "training"), [("infer", False), ("train", True)])
def test_make_step_puts_modules_into_the_mode(mode: str, training: bool) -> None:
    seen: list[bool] = []

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(self.training)
            return x * 2

    @case()
    def module() -> Made:
        return Module(), (torch.ones(2, requires_grad=True),), {}

    steps.make_step(module, mode, plain, size="tiny", seed=0, device="cpu")()
    assert set(seen) == {training}
