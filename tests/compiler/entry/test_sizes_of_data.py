"""Training through tensors whose sizes the data tells, in one graph: nothing of it goes back to eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, m: x[m].sum(),
    "mean": lambda x, m: (x[m] * 2).mean(),
    "sum_of_rows": lambda x, m: x[m].sin().sum(0),
    "sum_of_columns": lambda x, m: x[m].sum(-1, keepdim=True) * 2,
    "masked_select": lambda x, m: (x.masked_select(x > 0) ** 2).sum(),
    "rows_found": lambda x, m: x[m.nonzero().squeeze(1)].cos().sum(),
    "split": lambda x, m: (x[m] * 2).sum() + x.split([3, 1])[0].sum(),
    "softmax": lambda x, m: (x[m].softmax(-1) * x[m]).sum(),
    "maximum": lambda x, m: x[m].amax(-1).sum(),
    "norm": lambda x, m: x[m].norm(),
    "loss": lambda x, m: F.mse_loss(x[m], x[m].detach() + 1),
    "product": lambda x, m: (x[m] @ x.t()).sum(),
    "layer_norm": lambda x, m: F.layer_norm(x[m], (3,)).square().sum(),
    "joined": lambda x, m: torch.cat([x[m], x]).exp().sum(),
    "expanded": lambda x, m: (x[m].unsqueeze(0).expand(2, -1, -1) * 3).sum(),
}


def _gradient(function: Callable[[Tensor, Tensor], Tensor], mask: list[bool]) -> Tensor:
    x = torch.linspace(-1, 2, 12).view(4, 3).requires_grad_()
    function(x, torch.tensor(mask)).sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_size_of_data_is_trained_through(name: str) -> None:
    torch._dynamo.reset()
    f = FUNCTIONS[name]
    compiled = torch.compile(f, backend="assay", fullgraph=True, options={"fallback": "error"})
    for mask in ([True, False, True, True], [True, True, False, False]):
        torch.testing.assert_close(_gradient(compiled, mask), _gradient(f, mask))
