"""Tokens in joint graphs: those of forward's effects come first, those of backward's last, as torch has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._functorch import aot_autograd as torchs

from assay.compiler.entry.aot import aot_compile_joint_with_descriptors, aot_export_joint_with_descriptors
from assay.compiler.entry.export import aot_export_joint_simple
from assay.compiler.entry.joint_export import JointWithDescriptors
from tests.compiler.entry.ahead.effectful_operators import effectful_operators

NAME = "assay_joint_tokens"
LOG: list[str] = []
heard_by = torch.ops.assay_joint_tokens


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = effectful_operators(NAME, LOG, torch.clone)
    yield
    library._destroy()


class Heard(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        made: Tensor = heard_by.heard(x, "forward")
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        heard_by.note("note")
        one, other = heard_by.twice(gradients[0])
        made: Tensor = heard_by.heard(one * other, "backward")
        return made


def heard(x: Tensor) -> Tensor:
    made: Tensor = Heard.apply(x)
    return made


class Hearing(nn.Module):
    def __init__(self, is_trained: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3).requires_grad_(is_trained)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (heard(heard(self.inner(x)) * 2).sum(),)


def exported(module: nn.Module, x: Tensor) -> JointWithDescriptors:
    with ExitStack() as stack:
        return aot_export_joint_with_descriptors(stack, module, (x,))


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_joint_graph_has_the_tokens_that_torchs_has(is_trained: bool) -> None:
    module, x = Hearing(is_trained), torch.randn(2, 3)
    with ExitStack() as stack:
        theirs = torchs.aot_export_joint_with_descriptors(stack, module, (x,)).graph_module
        ours = exported(module, x).graph_module
        assert ours.code == theirs.code
        for kind in ("placeholder", "output"):
            pairs = zip(ours.graph.find_nodes(op=kind), theirs.graph.find_nodes(op=kind), strict=True)
            assert all(_said(one.meta["desc"]) == _said(other.meta["desc"]) for one, other in pairs)


def _said(descriptors: Any) -> list[str | None]:
    flat = descriptors if isinstance(descriptors, list | tuple) else [descriptors]
    return [None if each is None else f"{type(each).__name__} {each.expr()}" for each in flat]


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_compiled_joint_graph_takes_no_tokens(is_trained: bool) -> None:
    module, x = Hearing(is_trained), torch.randn(2, 3)
    parameters = list(module.parameters())
    compiled = aot_compile_joint_with_descriptors(exported(module, x))
    for _ in range(2):
        runs = []
        for run in (lambda: compiled(*parameters, x), lambda: module(x)):
            LOG.clear()
            (result,) = run()
            gradients = torch.autograd.grad(result, parameters) if is_trained else ()
            runs.append((result, gradients, list(LOG)))
        torch.testing.assert_close(runs[0][:2], runs[1][:2])
        assert runs[0][2] == runs[1][2] and len(LOG) == (8 if is_trained else 2)


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_joint_graph_of_a_function_has_the_tokens_that_torchs_has(is_trained: bool) -> None:
    args = tuple(torch.randn(3, requires_grad=is_trained) for _ in range(2))
    ours, theirs = (
        export(lambda x, w: (heard(x * w),), args, trace_joint=is_trained).code
        for export in (aot_export_joint_simple, torchs.aot_export_joint_simple)
    )
    assert ours == theirs
