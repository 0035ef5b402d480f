"""What eager refuses for its elements is refused where nothing of the result is read: it is written over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.harness.calls.errors import is_same_error

REFUSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i.view(1, 2)),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "take": lambda x, i: x.take(i * 10),
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(())),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "scatter": lambda x, i: x.scatter(0, i.view(1, 2), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i.view(1, 2), x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.view(1, 2), x, "amax"),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "embedding_bag": lambda x, i: F.embedding_bag(i.view(1, 2), x),
    "binary_cross_entropy": lambda x, i: F.binary_cross_entropy(x * 0 + 5, x.detach()),
    "integer_division": lambda x, i: i // (i * 0),
    "max_unpool1d": lambda x, i: F.max_unpool1d(x[None, :1, :2], i.view(1, 1, 2), 2, 2),
    "a view of it": lambda x, i: x[i].t()[1:],
    "what is computed of it": lambda x, i: x[i] * 2 + 1,
}
WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "zero": Tensor.zero_,
    "fill": lambda y: y.fill_(2),
    "copy": lambda y: y.copy_(y.new_ones(())),
    "uniform": lambda y: y.uniform_() if y.is_floating_point() else y.random_(),
    "zeros like it": torch.zeros_like,
    "new": lambda y: y.new_full((2,), 3),
}


@pytest.mark.parametrize("needs_gradient", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_written_over_is_refused(name: str, write: str, needs_gradient: bool) -> None:
    def program(x: Tensor, i: Tensor) -> Tensor:
        return WRITES[write](REFUSED[name](x, i)) + x.sum()

    x, wrong = torch.rand(3, 3, requires_grad=needs_gradient), torch.tensor([0, 7])
    torch._dynamo.reset()
    with pytest.raises((IndexError, RuntimeError)) as eager:
        program(x, wrong)
    with pytest.raises((IndexError, RuntimeError)) as ours:
        torch.compile(program, backend="assay")(x, wrong)
    assert is_same_error(eager.value, ours.value)
