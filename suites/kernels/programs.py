"""Programs that a good compiler makes one kernel of: `assay bench kernels [--size small|full] --against inductor`.

In size `small` what a kernel touches fits in the last cache, in `full` it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.case import SIZES, Case, Made, case
from assay.harness.measure import MEMORY_BOUND

SHAPES = {"tiny": (16, 64), "small": (1024, 1024), "full": (4096, 4096)}
HEADS, CHANNELS, DEPTH = 8, 8, 16
EPSILON = 1e-5

Inputs = Callable[[int, int], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Microkernel:
    """A function and what makes its inputs for so many rows of so many columns.

    `is_memory_bound`: nothing but moving its inputs and outputs should take time.
    """

    function: Callable[..., object]
    inputs: Inputs
    is_memory_bound: bool = True
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        return self.function.__name__ + ("_bf16" if self.dtype is torch.bfloat16 else "")

    def case(self) -> Case:
        def make(size: str) -> Made:
            given = self.inputs(*SHAPES[size])
            return self.function, tuple(t.to(self.dtype) if t.is_floating_point() else t for t in given), {}

        tags = ("kernel", MEMORY_BOUND) if self.is_memory_bound else ("kernel",)
        return case(modes=("infer",), tags=tags, sizes=SIZES, name=self.name)(make)


# ---- inputs


def one(rows: int, width: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, width),)


def two(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.randn(rows, width)


def two_and_vector(rows: int, width: int) -> tuple[Tensor, ...]:
    return (*two(rows, width), torch.randn(width))


def one_and_vectors(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.randn(width), torch.randn(width)


def two_and_vectors(rows: int, width: int) -> tuple[Tensor, ...]:
    return (*two(rows, width), torch.randn(width), torch.randn(width))


def with_mask(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.ones(rows, width, dtype=torch.bool).tril_()


def with_targets(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.randint(width, (rows,))


def with_rows(rows: int, width: int) -> tuple[Tensor, ...]:
    """A matrix and, in random order, the number of each of its rows."""
    return torch.randn(rows, width), torch.randperm(rows)


def two_with_rows(rows: int, width: int) -> tuple[Tensor, ...]:
    return (*two(rows, width), torch.randperm(rows))


def with_positions(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.randint(width, (rows, width))


def images(rows: int, width: int) -> tuple[Tensor, ...]:
    """As many elements as rows x width: a batch of square images, and two numbers a channel."""
    batch, side = max(rows // 64, 1), {64: 8, 1024: 32, 4096: 64}[width]
    channels = rows * width // (batch * side * side)
    return torch.randn(batch, channels, side, side), torch.rand(channels) + 0.5, torch.randn(channels)


def images_and_statistics(rows: int, width: int) -> tuple[Tensor, ...]:
    x, w, b = images(rows, width)
    return x, torch.randn_like(w), torch.rand_like(w) + 0.5, w, b


def queries(rows: int, width: int) -> tuple[Tensor, ...]:
    """Heads of a projection before they are transposed, and the angles of each position."""
    size = width // HEADS
    angles = torch.randn(rows, 1, size)
    return torch.randn(rows, HEADS, size), angles.cos(), angles.sin()


def cube(rows: int, width: int) -> tuple[Tensor, ...]:
    return (torch.randn(DEPTH, rows // DEPTH, width),)


def two_and_statistics(rows: int, width: int) -> tuple[Tensor, ...]:
    """A gradient, an input, and the statistics of its rows with the weight, as the backward of a norm takes them."""
    gradient, x = two(rows, width)
    mean = x.mean(1, keepdim=True)
    scale = torch.rsqrt(x.var(1, keepdim=True, correction=0) + EPSILON)
    return gradient, x, mean, scale, torch.randn(width)


def gradient_and_probabilities(rows: int, width: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, width), torch.randn(rows, width).softmax(1)


def three(rows: int, width: int) -> tuple[Tensor, ...]:
    return (*two(rows, width), torch.randn(rows, width))


# ---- softmax and losses


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax((x * 0.125).masked_fill(~mask, float("-inf")), -1)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def soft_cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    return -(F.log_softmax(x, -1) * torch.softmax(y, -1)).sum(-1).mean()


# ---- norms


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def layer_norm_residual(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    z = x + y
    return z, F.layer_norm(z, z.shape[-1:], w, b)


def rms_norm_residual(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    z = x + y
    wide = z.float()
    return z, (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def batch_norm_inference_relu(x: Tensor, mean: Tensor, variance: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, variance, w, b))


def group_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, CHANNELS, w, b))


# ---- pointwise


def gelu_mul_add(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.gelu(x) * y + w


def gelu_tanh_gate(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh") * y


def silu_gate(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def relu_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x * w + y) + x


def rotary_embedding(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The result by heads, as attention takes it."""
    low, high = x.chunk(2, -1)
    return (x * cos + torch.cat((-high, low), -1) * sin).transpose(0, 1).contiguous()


def dropout(x: Tensor, y: Tensor) -> Tensor:
    return F.dropout(x, 0.1, True) + y


# ---- reductions and scans


def sum_rows(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(0)


def sum_columns(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(1)


def sum_middle(x: Tensor) -> Tensor:
    return x.sum(1)


def sum_all(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


def mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(-1), x.var(-1)


def argmax(x: Tensor) -> Tensor:
    return (x * 2 + 1).argmax(-1)


def cumulative_sum(x: Tensor) -> Tensor:
    return torch.cumsum(x * 0.5, -1)


def cumulative_sum_of_columns(x: Tensor) -> Tensor:
    return torch.cumsum(x * 0.5, 0)


# ---- moving data


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    side = min(x.shape)
    return x[:side, :side].t() + y[:side, :side]


def transposed(x: Tensor) -> Tensor:
    return (x * 0.5).t().contiguous()


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids, table) * 2


def gather(x: Tensor, index: Tensor) -> Tensor:
    return torch.gather(x, 1, index) * 2


def index_add(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    return (x * 2).index_add(0, rows, y)


def cache_row_update(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """A cache of keys or values that gains one position: what is moved is a row, not the cache."""
    x[3:4] = y[3:4] * w
    return y[3] + w


# ---- backwards


def softmax_backward(gradient: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(gradient, y, -1, y.dtype)  # type: ignore[no-any-return]


def gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(gradient, x)  # type: ignore[no-any-return]


def silu_gate_backward(gradient: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.silu_backward(gradient * y, x), gradient * F.silu(x)


def layer_norm_backward(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    shape = x.shape[-1:]
    return torch.ops.aten.native_layer_norm_backward(gradient, x, shape, mean, scale, w, w, [True, True, True])  # type: ignore[no-any-return]


BF16 = torch.bfloat16
MICROKERNELS = (
    Microkernel(softmax, one),
    Microkernel(softmax, one, dtype=BF16),
    Microkernel(log_softmax, one),
    Microkernel(masked_softmax, with_mask),
    Microkernel(cross_entropy, with_targets),
    Microkernel(soft_cross_entropy, two, is_memory_bound=False),
    Microkernel(layer_norm, one_and_vectors),
    Microkernel(layer_norm, one_and_vectors, dtype=BF16),
    Microkernel(layer_norm_residual, two_and_vectors),
    Microkernel(rms_norm_residual, two_and_vector),
    Microkernel(rms_norm_residual, two_and_vector, dtype=BF16),
    Microkernel(batch_norm, images),
    Microkernel(batch_norm_inference_relu, images_and_statistics),
    Microkernel(group_norm_silu, images),
    Microkernel(gelu_mul_add, two_and_vector, is_memory_bound=False),
    Microkernel(gelu_mul_add, two_and_vector, is_memory_bound=False, dtype=BF16),
    Microkernel(gelu_tanh_gate, two, is_memory_bound=False),
    Microkernel(silu_gate, two),
    Microkernel(silu_gate, two, dtype=BF16),
    Microkernel(relu_residual, two_and_vector),
    Microkernel(rotary_embedding, queries),
    Microkernel(dropout, two, is_memory_bound=False),
    Microkernel(sum_rows, two),
    Microkernel(sum_columns, two),
    Microkernel(sum_middle, cube),
    Microkernel(sum_all, two),
    Microkernel(mean_and_variance, one),
    Microkernel(argmax, one),
    Microkernel(cumulative_sum, one, is_memory_bound=False),
    Microkernel(cumulative_sum_of_columns, one),
    Microkernel(transposed_add, two),
    Microkernel(transposed, one),
    Microkernel(embedding, with_rows),
    Microkernel(gather, with_positions, is_memory_bound=False),
    Microkernel(index_add, two_with_rows),
    Microkernel(cache_row_update, two_and_vector, is_memory_bound=False),
    Microkernel(softmax_backward, gradient_and_probabilities),
    Microkernel(gelu_backward, two, is_memory_bound=False),
    Microkernel(silu_gate_backward, three),
    Microkernel(layer_norm_backward, two_and_statistics),
)
CASES = [microkernel.case() for microkernel in MICROKERNELS]
