"""`assay.harness.observe.plain_loops`: loops under a dispatch mode are eager's, and the mode sees what is inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch.utils._python_dispatch import TorchDispatchMode

from assay.harness.observe.plain_loops import plain_loops


class Seen(TorchDispatchMode):
    """Notes what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def scanned(x: Tensor, w: Tensor) -> Tensor:
    last, all_of_them = scan(lambda c, row: ((c * w + row).tanh(), c * 2), w, x)
    return last.sum() + all_of_them.sum()


def branched(x: Tensor, w: Tensor) -> Tensor:
    return torch.cond(x.sum() > 100, lambda a: a.cos(), lambda a: (a * w).tanh(), (x,)).sum()  # type: ignore[no-any-return]


def mapped(x: Tensor, w: Tensor) -> Tensor:
    return map_rows(lambda row, w: (row * w).tanh(), x, w).sum()  # type: ignore[arg-type, no-any-return]


def looped(x: Tensor, w: Tensor) -> Tensor:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a * w).tanh()), (torch.tensor(0), x))[1].sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [scanned, branched, mapped, looped])
def test_plain_loops_are_eagers_under_a_mode(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    needs = function is not looped  # eager derives no while_loop here
    x, w = torch.randn(4, 3, requires_grad=needs), torch.randn(3, requires_grad=needs)
    expected = function(x, w)
    with plain_loops(), (seen := Seen()):
        found = function(x, w)
    torch.testing.assert_close(found, expected)
    assert "tanh" in seen.names
    if needs:
        torch.testing.assert_close(torch.autograd.grad(found, (x, w)), torch.autograd.grad(expected, (x, w)))
    torch.testing.assert_close(function(x, w), expected)  # and torch's own way is back
