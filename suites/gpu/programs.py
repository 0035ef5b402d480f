"""Programs that a good compiler makes one kernel of, with what they must move: `python -m assay.suites.gpu.bench`.

Each is a function, what makes its inputs on a GPU, and its bytes: every input read once, every output written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
EPSILON = 1e-5
GROUPS = 32
aten = torch.ops.aten
Inputs = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Moved:
    """A program bound by memory. `least` is the share of a copy's rate that it must reach."""

    name: str
    function: Callable[..., object]
    inputs: Inputs
    least: float = 0.75


def randn(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def gelu_mul_add(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x) * y + b


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, EPSILON)


def rms_norm_residual(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + r
    f = h.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * w, h


def full_sum(x: Tensor) -> Tensor:
    return x.sum()


def sum_dim0(x: Tensor) -> Tensor:
    return x.sum(0)


def cross_entropy(x: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(x, t)


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def cumulative_sum(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def dropout_residual(x: Tensor, r: Tensor) -> Tensor:
    return F.dropout(x, 0.1) + r


def batch_norm_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(F.batch_norm(x, None, None, w, b, True, 0.1, EPSILON))


def group_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, GROUPS, w, b, EPSILON))


def group_norm_gradients(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    n, c, *sides = x.shape
    return aten.native_group_norm_backward(g, x, mean, rstd, w, n, c, sides[0] * sides[1], GROUPS, [True, True, True])


def embedding_row_sum(t: Tensor, w: Tensor) -> Tensor:
    return F.embedding(t, w).sum(-1)


def rotary(q: Tensor, c: Tensor, s: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    turned = torch.cat((q[..., half:].neg(), q[..., :half]), -1)
    return q * c + turned * s


def square(dtype: torch.dtype, *others: int, n: int = 8192) -> Inputs:
    """x[n, n], then further tensors of as many dimensions as `others` says."""
    return lambda: (randn(n, n, dtype=dtype), *(randn(*([n] * dims), dtype=dtype) for dims in others))


def image(dtype: torch.dtype) -> Inputs:
    def make() -> tuple[Tensor, ...]:
        x = randn(64, 256, 56, 56, dtype=dtype).to(memory_format=torch.channels_last)
        return x, randn(256, dtype=dtype), randn(256, dtype=dtype)

    return make


def features() -> Tensor:
    """`x[16, 320, 96, 96]`, as inside a network of images."""
    return randn(16, 320, 96, 96)


def normed() -> tuple[Tensor, ...]:
    return features(), randn(320), randn(320)


def normed_and_gradients() -> tuple[Tensor, ...]:
    x, w = features(), randn(320)
    of_groups = x.float().view(16, GROUPS, -1)
    rstd = of_groups.var(-1, correction=0).add(EPSILON).rsqrt()
    return features(), x, of_groups.mean(-1).to(x.dtype), rstd.to(x.dtype), w


def rows_and_targets(rows: int, width: int, dtype: torch.dtype) -> Inputs:
    return lambda: (randn(rows, width, dtype=dtype), torch.randint(width, (rows,), device="cuda"))


def tokens(dtype: torch.dtype) -> Inputs:
    return lambda: (torch.randint(32000, (65536,), device="cuda"), randn(32000, 1024, dtype=dtype))


def heads(dtype: torch.dtype) -> Inputs:
    return lambda: (randn(8, 32, 2048, 128, dtype=dtype), randn(2048, 128, dtype=dtype), randn(2048, 128, dtype=dtype))


PROGRAMS = (
    Moved("gelu_mul_add", gelu_mul_add, square(BF16, 2, 1)),
    Moved("softmax", softmax, square(BF16)),
    Moved("layer_norm", layer_norm, square(BF16, 1, 1)),
    Moved("rms_norm_residual", rms_norm_residual, square(BF16, 2, 1)),
    Moved("full_sum", full_sum, square(BF16)),
    Moved("sum_dim0", sum_dim0, square(BF16)),
    Moved("cross_entropy", cross_entropy, rows_and_targets(8192, 8192, BF16)),
    Moved("transposed_add", transposed_add, square(BF16, 2)),
    Moved("cumulative_sum", cumulative_sum, square(BF16), 0.6),
    Moved("dropout_residual", dropout_residual, square(BF16, 2)),
    Moved("batch_norm_relu", batch_norm_relu, image(BF16)),
    Moved("group_norm_silu", group_norm_silu, normed),
    Moved("group_norm_gradients", group_norm_gradients, normed_and_gradients, 0.5),
    Moved("embedding_row_sum", embedding_row_sum, tokens(BF16)),
    Moved("rotary", rotary, heads(BF16)),
    Moved("softmax_fp32", softmax, square(F32)),
    Moved("softmax_odd", softmax, lambda: (randn(8191, 8191, dtype=BF16),)),
    Moved("layer_norm_fp32", layer_norm, square(F32, 1, 1)),
    Moved("layer_norm_768", layer_norm, lambda: (randn(87381, 768), randn(768), randn(768))),
    Moved("gelu_mul_add_fp16", gelu_mul_add, square(F16, 2, 1)),
    Moved("full_sum_fp32", full_sum, square(F32)),
    Moved("sum_dim0_fp32", sum_dim0, square(F32)),
    Moved("cross_entropy_50257", cross_entropy, rows_and_targets(4096, 50257, F32)),
    Moved("transposed_add_odd", transposed_add, lambda: (randn(8191, 8193), randn(8193, 8191))),
    Moved("cumulative_sum_fp32", cumulative_sum, square(F32), 0.6),
)
