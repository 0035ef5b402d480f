"""The chain of views from a tensor down to its base, also where the base was detached since."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.harness.observe.view_chain import history_of

WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "as eager writes": lambda base: base.mul_(2),
    "as a compiled call writes back": lambda base: base.copy_(base.detach() * 2),
}
VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[str, ...]]] = {
    "a part": (lambda base: base[1:], ("SliceBackward0",)),
    "a part of a part": (lambda base: base[1:][1:], ("SliceBackward0", "SliceBackward0")),
    "turned": (lambda base: base.t().unsqueeze(0), ("UnsqueezeBackward0", "TBackward0")),
    "taken apart": (lambda base: base.split(2)[1].squeeze(), ("SqueezeBackward0", "SplitBackward0")),
    "its real part": (lambda base: torch.view_as_complex(base.view(4, 2, 2)).real,
                      ("SelectBackward0", "ViewAsRealBackward0", "ViewAsComplexBackward0", "ViewBackward0")),
    "negated": (lambda base: torch._neg_view(base), ("NegViewBackward0",)),
}  # fmt: skip


def _base() -> Tensor:
    return torch.randn(4, 4, requires_grad=True).clone()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(("view", "chain"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("is_detached", [False, True])
def test_observe_chain_ends_at_the_base(
    write: Callable[[Tensor], Tensor], view: Callable[[Tensor], Tensor], chain: tuple[str, ...], is_detached: bool
) -> None:
    """Whatever computed the base, and though the base no longer says so."""
    base = write(_base())
    made = view(base)
    if is_detached:
        base.detach_()
    assert history_of(made) == (False, True, chain)


def test_observe_chain_of_a_leaf() -> None:
    base = torch.randn(4, requires_grad=True)
    assert history_of(base) == (True, False, ())
    assert history_of(base[1:]) == (False, True, ("SliceBackward0",))


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * 2


def test_observe_node_that_computed_a_detached_base_is_no_view() -> None:
    base = _Twice.apply(_base())
    made = base[1:]
    base.detach_()
    assert history_of(made)[2] == ("SliceBackward0",)
