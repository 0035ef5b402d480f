"""Calls that nobody reads, and that eager refuses for what is in their tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

FAR = torch.tensor([7])
FORMS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "scatter": lambda x, at: x.scatter(0, at, 1.0),
    "scatter of a source": lambda x, at: x.scatter(0, at, x),
    "scatter_add": lambda x, at: x.scatter_add(0, at, x),
    "scatter_reduce": lambda x, at: x.scatter_reduce(0, at, x, "sum"),
    "gather": lambda x, at: x.gather(0, at),
    "index_select": lambda x, at: x.index_select(0, at),
    "index_add": lambda x, at: x.index_add(0, at, x[:1]),
    "index_copy": lambda x, at: x.index_copy(0, at, x[:1]),
    "index_fill": lambda x, at: x.index_fill(0, at, 1.0),
    "index_put": lambda x, at: x.index_put((at,), x[0]),
    "index_reduce": lambda x, at: x.index_reduce(0, at, x[:1], "amax"),
    "put": lambda x, at: x.put(at, x[:1]),
    "take": lambda x, at: x.take(at),
    "embedding": lambda x, at: F.embedding(at, x[:, None]),
    "embedding_bag": lambda x, at: F.embedding_bag(at[None], x[:, None]),
    "nll_loss": lambda x, at: F.nll_loss(x[None], at),
    "cross_entropy": lambda x, at: F.cross_entropy(x[None], at),
    "binary_cross_entropy": lambda x, at: F.binary_cross_entropy(x + 9, x),
    "multi_margin_loss": lambda x, at: F.multi_margin_loss(x[None], at),
    "multilabel_margin_loss": lambda x, at: F.multilabel_margin_loss(x[None], at.expand(1, 3)),
    "masked_scatter": lambda x, at: x.masked_scatter(x < 9, x[:1]),
    "histc": lambda x, at: torch.histc(x * float("nan")),
    "max_unpool1d": lambda x, at: F.max_unpool1d(x[None], at.expand(1, 3) * 10, 2),
    "whole division": lambda x, at: at // (at - 7),
    "remainder": lambda x, at: at % (at - 7),
    "segment_reduce": lambda x, at: torch.segment_reduce(x, "sum", lengths=at),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_unread_refusals_are_raised(form: str, requires_grad: bool) -> None:
    def f(x: Tensor, at: Tensor) -> Tensor:
        FORMS[form](x, at)
        return x + 1

    x = torch.arange(3.0, requires_grad=requires_grad)
    with pytest.raises(Exception) as wanted:
        f(x, FAR)
    torch._dynamo.reset()
    with pytest.raises(wanted.type):
        torch.compile(f, backend="assay")(x, FAR)


def test_unread_lookup_in_range_is_taken() -> None:
    def f(x: Tensor, at: Tensor) -> Tensor:
        x.gather(0, at)
        return x.exp()

    x = torch.arange(9.0, requires_grad=True)
    y = torch.compile(f, backend="assay")(x, FAR)
    y.sum().backward()
    torch.testing.assert_close(y, x.exp())
    torch.testing.assert_close(x.grad, x.exp().detach())
