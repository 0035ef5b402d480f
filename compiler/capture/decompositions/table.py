"""Which composite operators are taken apart while recording, chosen from torch's tables.

Only operators that no record of `compiler/ops` lowers and that ATen runs no faster whole. Everything else keeps its
name in the graph: a call that is not taken apart costs one node to record instead of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

from assay.compiler.capture.decompositions.batch_norm import BATCH_NORM, EXACT_BATCH_NORM
from assay.compiler.capture.decompositions.foreach import EXACT_FOREACH, FOREACH
from assay.compiler.capture.decompositions.group_norm import GROUP_NORM
from assay.compiler.capture.decompositions.masked_puts import PUTS
from assay.compiler.capture.decompositions.means_of_nothing import means_of_nothing
from assay.compiler.capture.decompositions.nll_loss import NLL_LOSS
from assay.compiler.capture.decompositions.uneven_steps import UNEVEN_STEPS
from assay.compiler.capture.decompositions.view_copies import COPIES
from assay.compiler.capture.decompositions.view_steps import mark_as_one
from assay.compiler.capture.decompositions.wide_sums import WIDE_SUMS
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten

CHOSEN = [
    aten.mse_loss,
    aten.mse_loss_backward,
    aten.addcmul,
    aten.addcdiv,
    aten.hardswish_backward,
    aten.hardtanh_backward,
    aten.softplus_backward,
    aten.elu_backward,
    aten.leaky_relu_backward,
    aten.slice_backward,
    aten.select_backward,
    aten.new_zeros,
    aten.new_ones,
    aten.new_full,
    aten.masked_fill,
]

TABLE = get_decompositions(CHOSEN)


def expanded(x: torch.Tensor, size: Sequence[int], *, implicit: bool = False) -> object:
    """`expand` with eager's strides along new dimensions of size 1, where a fake tensor says others: one in front of a
    dimension that is expanded has the stride 0. What is computed of it follows them."""
    added = len(size) - x.dim()
    if not all(type(n) is int for n in (*size, *x.shape, *x.stride())):  # first: nobody knows whether a symbol is 1
        return NotImplemented
    if not x.dim() or 1 not in size[: max(added, 0)]:
        return NotImplemented
    new, own = size[:added], x.shape[0]
    inner, step = (own, x.stride(0)) if size[added] in (-1, own) else (size[added], 0)
    strides = list[int]()
    for wanted in reversed(new):
        inner, step = wanted, inner * step if wanted == 1 else 0
        strides.insert(0, step)
    if strides == [own * x.stride(0) if wanted == 1 else 0 for wanted in new]:  # as fakes have them
        return NotImplemented
    wide = x.expand(size[added:])
    for wanted in reversed(new):
        wide = wide.unsqueeze(0) if wanted == 1 else wide.expand(wanted, *wide.shape)
    mark_as_one(aten.expand.default, x, (list(size),), wide)
    return wide


def power(x: torch.Tensor, exponent: object) -> object:
    """`pow` of booleans by True or False, which is boolean; of fakes it is of integers."""
    if x.dtype is not torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return x.clone() if exponent else torch.ones_like(x)


def of_known_numbers(decomposition: Callable[..., object]) -> Callable[..., object]:
    """The decomposition, for numbers that are known: eager's kernel alone refuses one that its dtype does not hold."""

    def decompose(*args: Any, **kwargs: Any) -> object:
        if any(isinstance(given, SYMBOLIC) for given in (*args, *kwargs.values())):
            return NotImplemented
        return decomposition(*args, **kwargs)

    return decompose


CHECKED = (aten.masked_fill.Scalar, aten.addcmul.default, aten.addcdiv.default)
OWN: Decompositions = {
    **{operator: of_known_numbers(TABLE[operator]) for operator in CHECKED},
    aten.pow.Tensor_Scalar: power,
    aten.expand.default: expanded,
}
PLAIN: Decompositions = {**means_of_nothing({}), **UNEVEN_STEPS}
"""Those without which an operator cannot run at all, or not without harm."""

EXACT: Decompositions = {
    **get_decompositions([aten.slice_backward, aten.select_backward, aten.new_zeros, aten.new_ones, aten.new_full]),  # type: ignore[dict-item]
    aten.expand.default: expanded,
    **FOREACH,
    **EXACT_FOREACH,
    **EXACT_BATCH_NORM,
    **COPIES,
    **WIDE_SUMS,
    **PUTS,
    **PLAIN,
}
"""Those that do what eager does, bit for bit, but for the order of a sum."""

DECOMPOSITIONS: Decompositions = {
    **TABLE, **OWN, **BATCH_NORM, **GROUP_NORM, **NLL_LOSS,  # type: ignore[dict-item]
    **FOREACH, **COPIES, **WIDE_SUMS, **PUTS, **means_of_nothing(TABLE), **UNEVEN_STEPS,  # type: ignore[arg-type]
}  # fmt: skip
