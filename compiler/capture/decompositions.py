"""Which composite operators are taken apart while recording, chosen from torch's tables.

Only operators that no record of `compiler/ops` lowers and that ATen runs no faster whole. Everything else keeps its
name in the graph: a call that is not taken apart costs one node to record instead of many.
"""

from __future__ import annotations

import torch
from torch._decomp import get_decompositions

from compiler.capture.batch_norm import BATCH_NORM
from compiler.capture.copies import COPIES
from compiler.capture.foreach import FOREACH
from compiler.capture.group_norm import GROUP_NORM
from compiler.torch_compat import Decompositions

aten = torch.ops.aten

CHOSEN = [
    aten.nll_loss2d_forward,
    aten.nll_loss2d_backward,
    aten.mse_loss,
    aten.mse_loss_backward,
    aten.nll_loss_backward,
    aten.addcmul,
    aten.addcdiv,
    aten.lerp,
    aten.hardsigmoid_backward,
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

DECOMPOSITIONS: Decompositions = {**get_decompositions(CHOSEN), **BATCH_NORM, **GROUP_NORM, **FOREACH, **COPIES}  # type: ignore[dict-item]
