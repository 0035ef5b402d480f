"""Programs that a good compiler makes one kernel of: `assay bench kernels --against inductor,eager`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.case import SIZES, Case, Made, case

SHAPES = {"tiny": (16, 64), "small": (1024, 1024), "full": (8192, 8192)}


def softmax(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, w)


def rms_norm_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    z = x + y
    return z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def gelu_mul_add(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.gelu(x) * y + w


def silu_gate(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.silu(x) * y


def sum_rows(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return (x * y).sum(0)


def sum_columns(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return (x * y).sum(1)


def sum_all(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return (x * y).sum()


def transposed_add(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    side = min(x.shape)
    return x[:side, :side].t() + y[:side, :side]


def log_softmax_loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return -(F.log_softmax(x, -1) * torch.softmax(y, -1)).sum(-1).mean()


def dropout_free_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x * w + y) + x


def cache_row_update(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """A cache of keys or values that gains one position: what is moved is a row, not the cache."""
    x[3:4] = y[3:4] * w
    return y[3] + w


def _declared(function: Callable[..., Tensor]) -> Case:
    def make(size: str) -> Made:
        rows, width = SHAPES[size]
        return function, (torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)), {}

    return case(modes=("infer",), tags=("kernel",), sizes=SIZES, name=function.__name__)(make)


CASES = [
    _declared(function)
    for function in (
        softmax,
        layer_norm,
        rms_norm_residual,
        gelu_mul_add,
        silu_gate,
        sum_rows,
        sum_columns,
        sum_all,
        transposed_add,
        log_softmax_loss,
        dropout_free_residual,
        cache_row_update,
    )
]
