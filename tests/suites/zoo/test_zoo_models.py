"""Every model of the zoo is a sound case: made afresh, deterministic, differentiable and traced as its row says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.case import Case
from assay.harness.discover import discover

pytest.importorskip("transformers", reason='the zoo needs: python -m pip install -e ".[zoo]"')
ZOO = discover(["zoo"])
BROKEN = {"zoo.segformer"}
"""Models that Dynamo cannot trace whole: asking a model for its hidden states takes a lock when it is called."""

PUBLISHED = {
    "bert": 109.5, "distilbert": 67.0, "roberta": 124.7, "gpt2": 124.4, "llama": 1235.8, "qwen2": 494.0,
    "gemma2": 2614.3, "t5": 60.5, "mamba": 129.1, "rwkv": 169.3, "vit": 86.6, "convnext": 28.6, "resnet": 25.6,
    "mobilenet_v2": 3.5, "swin": 28.3, "segformer": 3.8, "clip": 151.3, "whisper": 72.6,
}  # fmt: skip
"""Millions of parameters in size `full`, as published. Mixtral is cut to two layers."""

every_model = pytest.mark.parametrize("case", ZOO, ids=[case.name for case in ZOO])


def made(case: Case, mode: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    module, args, kwargs = case.make("tiny")
    assert isinstance(module, torch.nn.Module)
    return module.train(mode == "train"), args, kwargs


def loss_of(output: Any) -> Tensor:
    return output.square().sum() if isinstance(output, Tensor) else output.loss


def trained(case: Case, seed: int = 1) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss and the gradients of one training step on fresh objects."""
    module, args, kwargs = made(case, "train")
    torch.manual_seed(seed)
    loss = loss_of(module(*args, **kwargs))
    loss.backward()
    learned = {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}
    return loss.detach(), {name: leaf.grad for name, leaf in learned.items()}


def test_zoo_holds_the_architectures_that_it_promises() -> None:
    names = {case.name.removeprefix("zoo.") for case in ZOO}
    promised = "bert gpt2 llama t5 mixtral vit convnext resnet mobilenet_v2 swin whisper mamba minilm".split()
    assert names >= set(promised)
    assert all(case.modes == ("infer", "train") and case.sizes == ("tiny", "small", "full") for case in ZOO)


@every_model
def test_zoo_makes_equal_but_separate_objects(case: Case) -> None:
    first, second = (made(case, "infer")[0].state_dict() for _ in range(2))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
        assert tensor.data_ptr() != second[name].data_ptr() or tensor.numel() == 0, name


@every_model
def test_zoo_step_is_deterministic_and_reaches_every_parameter(case: Case) -> None:
    (loss, gradients), (again, gradients_again) = trained(case), trained(case)
    assert loss.isfinite() and torch.equal(loss, again)
    for name, gradient in gradients.items():
        gradient_again = gradients_again[name]
        assert gradient is not None and gradient_again is not None, f"{case.name}: no gradient reaches {name}"
        assert gradient.isfinite().all() and torch.equal(gradient, gradient_again), name


@every_model
def test_zoo_depends_on_the_seed_only_where_it_says_dropout(case: Case) -> None:
    loss, other = (trained(case, seed)[0] for seed in (1, 2))
    assert torch.equal(loss, other) == ("dropout" not in case.tags)


@every_model
def test_zoo_traces_whole_unless_it_is_known_to_break(case: Case) -> None:
    module, args, kwargs = made(case, "infer")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        torch.compile(module, backend="eager")(*args, **kwargs)
    breaks = list(torch._dynamo.utils.counters["graph_break"])
    assert bool(breaks) == (case.name in BROKEN), breaks


@pytest.mark.parametrize("name", PUBLISHED)
def test_zoo_in_full_size_has_the_published_number_of_parameters(name: str) -> None:
    (case,) = discover([f"zoo.{name}"])
    with torch.device("meta"):
        module, _, _ = case.make("full")
    assert isinstance(module, torch.nn.Module)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert round(count / 1e6, 1) == PUBLISHED[name]
