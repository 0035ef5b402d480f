"""Results that are pieces of one tensor: they come of one call, so that their gradients lie side by side as eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

Program = Callable[[Tensor], Sequence[Tensor]]

PROGRAMS: dict[str, Program] = {
    "split": lambda x: x.split(2),
    "split, uneven": lambda x: x.split([1, 3]),
    "chunk": lambda x: x.chunk(2),
    "unbind": lambda x: x.unbind(1),
    "split of what it makes": lambda x: x.clone().split(2),
    "split of a view": lambda x: x.t().split(2),
    "views of pieces": lambda x: [piece.t() for piece in x.split(2)],
    "pieces of pieces": lambda x: [half for piece in x.split(2) for half in piece.unbind(0)],
}


def _gradient(program: Program, x: Tensor, used: slice) -> tuple[Tensor | None, int]:
    """The gradient of what it is given, through some of the results, and how many nodes made these."""
    x = x.detach().requires_grad_()
    results = program(x)[used]
    nodes = len({result.grad_fn for result in results})
    torch.autograd.backward(results, [torch.ones(result.shape).to(x.dtype) for result in results])
    return x.grad, nodes


DTYPES = (torch.float32, torch.float8_e4m3fn)
"""The second is one that no kernel adds numbers of."""
ROWS = [
    *itertools.product(PROGRAMS, DTYPES, [slice(None)]),
    *itertools.product(["split, uneven"], DTYPES, [slice(1), slice(1, None)]),
]


@pytest.mark.parametrize(("name", "dtype", "used"), ROWS, ids=str)
def test_pieces_have_the_gradient_of_eager(name: str, dtype: torch.dtype, used: slice) -> None:
    torch._dynamo.reset()
    x = torch.arange(16.0).view(4, 4).to(dtype)
    compiled = torch.compile(PROGRAMS[name], backend="assay")
    got, nodes = _gradient(compiled, x, used)
    expected, nodes_expected = _gradient(PROGRAMS[name], x, used)
    assert got is not None and expected is not None
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8)) and got.stride() == expected.stride()
    assert nodes == nodes_expected


def test_pieces_that_are_two_results_are_two_tensors() -> None:
    compiled = torch.compile(lambda x: (x.split(2)[0], x.split(2)[0], x.split(2)[1]), backend="assay")
    one, again, other = compiled(torch.ones(4))
    assert one is not again and torch._C._is_alias_of(one, again) and other.storage_offset() == 2
