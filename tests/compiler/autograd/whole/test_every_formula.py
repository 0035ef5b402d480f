"""Each formula of torch's autograd that its database of operators leads to, recorded in a whole backward."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import assay
from assay.compiler.journal import totals
from assay.suites.ops.database import op_db

SAMPLES = 25
"""Of one operator at most: those that lead to no formula which has not been met are left out."""
LEAST_FORMULAS = 300
LEAST_RECORDED = 300
"""Of the backwards, those no part of which ran in eager."""
OF_LARGER_MEMORY = "partial_views"
"""The variant whose samples look beyond their elements, where a copy has no memory."""


def _formulas(outputs: list[Tensor]) -> set[str]:
    """The names of the nodes behind some results."""
    waiting, found = [output.grad_fn for output in outputs], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions]
    return {type(node).__name__ for node in found}


def _called(operator: Any, sample: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The leaves of a call, and its results that have a history."""
    flat, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    flat = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in flat]
    given, args, kwargs = pytree.tree_unflatten(flat, structure)
    torch.manual_seed(0)
    results = pytree.tree_leaves(sample.output_process_fn_grad(operator.op(given, *args, **kwargs)))
    leaves = [x for x in flat if isinstance(x, Tensor) and x.requires_grad]
    return leaves, [result for result in results if isinstance(result, Tensor) and result.requires_grad]


def _gradients(operator: Any, sample: Any, around: AbstractContextManager[None]) -> list[Tensor | None]:
    leaves, results = _called(operator, sample)
    dense = [result.to_dense() if result.layout is not torch.strided else result for result in results]
    parts = [(each.abs() if each.is_complex() else each).sum() * (k + 1) for k, each in enumerate(dense)]
    with around:
        torch.stack(parts).sum().backward()
    return [leaf.grad if leaf.grad is None else leaf.grad.to_dense() for leaf in leaves]


def _samples(operators: list[Any], met: set[str]) -> Iterator[tuple[Any, Any]]:
    """Those that lead to formulas that no sample before led to."""
    for operator in operators:
        samples = list(operator.sample_inputs("cpu", torch.float64, requires_grad=True))
        for sample in samples[:: max(1, len(samples) // SAMPLES)]:
            formulas = _formulas(_called(operator, sample)[1])
            if not formulas <= met:
                met |= formulas
                yield operator, sample


@pytest.mark.nightly
def test_each_formula_gives_eagers_gradients_in_a_whole_backward() -> None:
    operators = [
        each for each in op_db
        if each.supports_autograd and torch.float64 in each.supported_dtypes("cpu")
        and each.variant_test_name != OF_LARGER_MEMORY
    ]  # fmt: skip
    met, recorded, wrong = set[str](), 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator, sample in _samples(operators, met):
            expected = _gradients(operator, sample, nullcontext())
            before = copy.deepcopy(totals()["eager_backwards"])
            found = _gradients(operator, sample, assay.compiled_autograd({"target": "aten"}))
            recorded += totals()["eager_backwards"] == before
            pairs = list(zip(found, expected, strict=True))
            if not all((one is None) == (two is None) for one, two in pairs) or not all(
                torch.allclose(one, two, rtol=1e-6, atol=1e-8, equal_nan=True)
                for one, two in pairs if one is not None and two is not None
            ):  # fmt: skip
                wrong.append(f"{operator.name}: {sample.summary()}")
    assert not wrong, "\n".join(wrong)
    assert len(met) >= LEAST_FORMULAS
    assert recorded >= LEAST_RECORDED
