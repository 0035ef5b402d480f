"""Batch norm as reductions and arithmetic, with sums in float64, as eager's CPU kernels accumulate in double.

    mean, var over (N, spatial);   y = (x - mean) / sqrt(var + eps) * w + b

Of dense tensors eager's CPU kernel has y = x * alpha + beta, with alpha = w / sqrt(var + eps), beta = b - mean * alpha.
Where the variance is small beside the mean, that loses digits which the first form keeps; where it is 0 and so is eps,
infinities stand elsewhere. So each form is taken where eager takes it.

Sums in float32 lose what eager keeps: the gradients of a convolution before a batch norm are small differences of
large sums.

Source: which results there are, in which dtypes, follows aten/src/ATen/native/Normalization.cpp, torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.devices import has_kernels
from assay.compiler.ir.tensors.fake_dtypes import kept_in
from assay.compiler.ir.tensors.layout.strides import hints, is_by_channels
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
Maybe = Tensor | None
MAY_BE_CUDNNS = ContextVar("MAY_BE_CUDNNS", default=False)
"""Whether the call of the user's that is recorded may be cuDNN's; torch takes it apart as if it may not. ATen's own
norms, called by name, never are."""


@contextmanager
def without_cudnn(asked: bool) -> Iterator[None]:
    """Norms are recorded as ATen's own; `asked` is whether the program's may be cuDNN's."""
    token = MAY_BE_CUDNNS.set(asked)
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        MAY_BE_CUDNNS.reset(token)


def per_channel(value: Tensor, like: Tensor) -> Tensor:
    """`value[c]` as `[1, c, 1, ...]`, in float32 or wider."""
    shape = [1, -1] + [1] * (like.dim() - 2)
    return wide(value).view(shape)


def wide(value: Tensor) -> Tensor:
    """The value in float32, in which halves are computed; others as they are."""
    return value.float() if value.dtype in HALVES else value


def _summed_in(x: Tensor) -> torch.dtype:
    """In what sums over a batch are taken: float64; of halves on a GPU float32, in which their squares are exact."""
    return torch.float32 if x.is_cuda and x.dtype in HALVES else torch.float64


def _sum(value: Tensor, dims: list[int], dtype: torch.dtype) -> Tensor:
    """The sum over `dims`, accumulated in `dtype`."""
    return aten.sum.dim_IntList(value, dims, False, dtype=dtype)


def _reduced(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _count(x: Tensor) -> int:
    return x.numel() // x.shape[1]


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of each channel in float64; on a GPU by one pass.

    There float64 tells the sum of squares from the square of the sum; float32 would not (a mean of 1000, a deviation of
    1), and is left to what joins variances (`codegen/triton/programs.py`).
    """
    dims = _reduced(x)
    dtype = _summed_in(x)
    if not x.is_cuda or dtype is torch.float32:
        variance, mean = torch.var_mean(x.to(dtype), dims, correction=0)
        return variance.double(), mean.double()
    count = _count(x)
    exact = x.to(dtype)
    mean = _sum(exact, dims, dtype).double() / count
    square = _sum(exact * exact, dims, dtype).double() / count
    return (square - mean * mean).clamp(min=0), mean


def _scaled(x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    """`x * alpha + beta`, as eager's kernel for dense tensors has it."""
    scale = rstd if weight is None else rstd * wide(weight)
    shift = -mean * scale if bias is None else wide(bias) - mean * scale
    return (wide(x) * per_channel(scale, x) + per_channel(shift, x)).to(x.dtype)


def _centered(x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    """`(x - mean) * rstd * weight + bias`, as eager's other kernels have it."""
    y = (wide(x) - per_channel(mean, x)) * per_channel(rstd, x)
    y = y if weight is None else y * per_channel(weight, x)
    return (y if bias is None else y + per_channel(bias, x)).to(x.dtype)


def _normalized(x: Tensor, mean: Tensor, rstd: Tensor, *parameters: Maybe) -> Tensor:
    """The output by these statistics; `parameters` are weight, bias, and the running statistics."""
    given = [value for value in parameters if value is not None]
    is_dense = _is_regular(x) and all(value.is_contiguous() for value in given)
    form = _scaled if is_dense and not x.is_cuda else _centered
    return form(x, mean, rstd, *parameters[:2])


def _is_regular(x: Tensor) -> bool:
    """Whether `x` lies in rows or by channels."""
    return x.is_contiguous() or is_by_channels(x)


def _laid_out(value: Tensor, x: Tensor) -> Tensor:
    """The value as eager's CPU kernels and cuDNN lay out what has the shape of `x`: by channels if `x` is so, else in
    rows."""
    return value if is_by_channels(x) else value.contiguous()


def _as_eager(y: Tensor, x: Tensor, *parameters: Maybe, training: bool, eps: float) -> Tensor:
    """The output, laid out as eager's; ATen's own kernel for a GPU keeps any layout."""
    if x.is_cuda and (_is_regular(x) or not _is_cudnns(x, *parameters, training=training, eps=eps)):
        return y
    return _laid_out(y, x)


def normalized_by_batch(
    x: Tensor, weight: Maybe, bias: Maybe, *statistics: Maybe, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """`_native_batch_norm_legit_functional`: output, batch mean, reciprocal deviation, and the new running statistics.

    Shapes: `x[n, c, ...], weight[c] -> y[n, c, ...], mean[c], rstd[c], running_mean[c], running_var[c]`
    """
    running_mean, running_var = statistics
    if not training:
        assert running_mean is not None and running_var is not None
        y, mean, rstd = normalized_by_statistics(x, weight, bias, running_mean, running_var, momentum, eps)
        return y, mean, rstd, running_mean.clone(), running_var.clone()
    count = _count(x)
    var, mean = _moments(x)
    kept = kept_in(x, weight, bias, running_mean, running_var)
    rstd, short = torch.rsqrt(var + eps).to(kept), mean.to(kept)
    y = _normalized(x, short, rstd, weight, bias, running_mean, running_var)
    y = _as_eager(y, x, weight, bias, running_mean, running_var, training=True, eps=eps)
    if running_mean is not None:
        running_mean = (momentum * mean + (1 - momentum) * running_mean.double()).to(running_mean.dtype)
    if running_var is not None:
        unbiased = var * (count / (count - 1))
        running_var = (momentum * unbiased + (1 - momentum) * running_var.double()).to(running_var.dtype)
    return y, short, rstd, running_mean, running_var


def normalized_without_statistics(
    x: Tensor, weight: Maybe, bias: Maybe, *, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_native_batch_norm_legit.no_stats`: by the batch, with no running statistics to update."""
    y, mean, rstd, *_ = normalized_by_batch(x, weight, bias, None, None, training=training, momentum=momentum, eps=eps)
    return y, mean, rstd


def normalized_by_statistics(
    x: Tensor, weight: Maybe, bias: Maybe, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_native_batch_norm_legit_no_training`: the output under the running statistics, and two empty tensors; on a GPU
    these statistics, which backward is to see as they were."""
    rstd = torch.rsqrt(wide(running_var) + eps)
    y = _normalized(x, wide(running_mean), rstd, weight, bias, running_mean, running_var)
    y = _as_eager(y, x, weight, bias, running_mean, running_var, training=False, eps=eps)
    kept = kept_in(x, weight, bias, running_mean, running_var)
    if x.is_cuda:
        return y, running_mean.to(kept, copy=True), rstd.to(kept)
    empty = x.new_empty((0,), dtype=kept)
    return y, empty, empty.clone()


def updated_by_batch(
    x: Tensor, weight: Maybe, bias: Maybe, *statistics: Maybe, momentum: float, eps: float
) -> tuple[Maybe, ...]:
    """`_batch_norm_with_update_functional`: as `normalized_by_batch`, with an empty reserve before the statistics.

    torch says of these statistics that they are float32, whatever they were.
    """
    made = normalized_by_batch(x, weight, bias, *statistics, training=True, momentum=momentum, eps=eps)
    return *made[:3], _no_reserve(x), *made[3:]


def normalized_without_update(
    x: Tensor, weight: Maybe, bias: Maybe, *statistics: Maybe, momentum: float, eps: float
) -> tuple[Maybe, ...]:
    """`_batch_norm_no_update`: by the running statistics, with an empty reserve; without statistics left to ATen."""
    mean, var = statistics
    if mean is None or var is None:
        return NotImplemented
    return *normalized_by_statistics(x, weight, bias, mean, var, momentum, eps), _no_reserve(x)


def _no_reserve(x: Tensor) -> Tensor:
    return x.new_empty((0,), dtype=torch.uint8)


def gradients_of_update(
    grad: Tensor, x: Tensor, weight: Maybe, *statistics: Maybe, update: bool, eps: float, output_mask: list[bool],
    reserve: Tensor,
) -> tuple[Maybe, Maybe, Maybe]:  # fmt: skip
    """`batch_norm_backward`, which on the CPU is `native_batch_norm_backward`."""
    return batch_norm_gradients(grad, x, weight, *statistics, train=update, eps=eps, output_mask=output_mask)


def batch_norm_gradients(
    grad: Tensor, x: Tensor, weight: Maybe, *statistics: Maybe, train: bool, eps: float, output_mask: list[bool]
) -> tuple[Maybe, Maybe, Maybe]:
    """`native_batch_norm_backward`: the gradients of input, weight and bias.

    `statistics` are the running mean and variance, and what forward saved. It saved the mean and reciprocal deviation
    of the batch, or those that were used, or nothing where these are the running ones of a CPU. Training may have
    changed the running ones meanwhile. Which of both are read is as eager has it.
    """
    running_mean, running_var, mean, rstd = statistics
    has_used = x.is_cuda and mean is not None and mean.shape == x.shape[1:2]
    if not train and not (has_used and _reads_those_used(x, output_mask)):
        assert running_mean is not None and running_var is not None
        mean, rstd = wide(running_mean), torch.rsqrt(wide(running_var) + eps)
    assert mean is not None and rstd is not None
    dims, upper = _reduced(x), wide(grad)
    gap = wide(x) - per_channel(mean, x)
    dtype = _summed_in(x)
    total, dot = _sum(upper, dims, dtype), _sum(gap.to(dtype) * upper, dims, dtype)
    scale = rstd if weight is None else rstd * wide(weight)
    centered = upper
    if train:
        slope = (dot * rstd.double() * rstd / _count(x)).to(upper.dtype)
        average = (total / _count(x)).to(upper.dtype)
        centered = upper - per_channel(average, x) - gap * per_channel(slope, x)
    to_x = _laid_out((centered * per_channel(scale, x)).to(x.dtype), x)
    kept = (weight if weight is not None else x).dtype
    to_weight = (dot * rstd).to(kept) if output_mask[1] else None
    return (to_x if output_mask[0] else None, to_weight, total.to(kept) if output_mask[2] else None)


def _reads_those_used(x: Tensor, output_mask: list[bool]) -> bool:
    """Whether ATen's backward on a GPU reads the statistics that an evaluation used. The kernel that computes all
    gradients at once, for what has no channels innermost, reads the running ones."""
    has_channels_innermost = is_by_channels(x) or (x.is_contiguous() and x.stride(1) == 1)
    return has_channels_innermost or not output_mask[0] or not (output_mask[1] or output_mask[2])


def _generated(decompose: Callable[..., object], *named: str) -> Callable[..., object]:
    """Only where kernels are generated: elsewhere ATen runs it faster whole. `named` are the last arguments."""

    def apply(*args: object) -> object:
        assert isinstance(args[0], Tensor)
        if not has_kernels(args[0].device):
            return NotImplemented
        split = len(args) - len(named)
        return decompose(*args[:split], **dict(zip(named, args[split:], strict=True)))

    return apply


BATCH_NORM = {
    aten._native_batch_norm_legit_functional.default: _generated(normalized_by_batch, "training", "momentum", "eps"),
    aten._native_batch_norm_legit.no_stats: _generated(normalized_without_statistics, "training", "momentum", "eps"),
    aten._native_batch_norm_legit_no_training.default: _generated(normalized_by_statistics),
    aten._batch_norm_with_update_functional.default: _generated(updated_by_batch, "momentum", "eps"),
    aten._batch_norm_no_update.default: _generated(normalized_without_update, "momentum", "eps"),
    aten.batch_norm_backward.default: _generated(gradients_of_update, "update", "eps", "output_mask", "reserve"),
    aten.native_batch_norm_backward.default: _generated(batch_norm_gradients, "train", "eps", "output_mask"),
}


def as_eager(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Maybe, var: Maybe, training: bool, _momentum: float, eps: float
) -> object:
    """`_native_batch_norm_legit_functional`, left to ATen where that is what eager calls.

    Raises: Unsupported where eager calls cuDNN's, which rounds otherwise: no graph has an operator for it, as it writes
    the running statistics without saying so.
    """
    if x.is_cuda and _is_cudnns(x, weight, bias, mean, var, training=training, eps=eps):
        raise Unsupported("eager normalizes by cuDNN, whose rounding no operator of a graph has")
    return NotImplemented


def _is_cudnns(x: Tensor, *parameters: Maybe, training: bool, eps: float) -> bool:
    """Whether eager calls cuDNN's, which torch tells of real tensors alone.

    The parameters are weight, bias, and the running mean and variance.
    """
    weight, bias, mean, var = parameters
    stands = (weight, weight) if mean is None and var is None and training else (mean, var)
    given = [value for value in (x, weight, bias, *stands) if value is not None]
    if len(given) < 5 or not MAY_BE_CUDNNS.get():
        return False
    with _disable_current_modes(), torch.backends.cudnn.flags(enabled=True):
        sizes = [hints(value.shape[:2]) + [1] * (value.dim() - 2) for value in given]  # however large images are
        real = [torch.empty(n, dtype=each.dtype, device=each.device) for n, each in zip(sizes, given, strict=True)]
        found = torch._C._select_batch_norm_backend(*real, training, eps)
    return bool(found == torch._C._BatchNormBackend.Cudnn)  # type: ignore[attr-defined]


def as_eager_without_statistics(
    x: Tensor, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> object:
    """`_native_batch_norm_legit.no_stats`, likewise."""
    return as_eager(x, weight, bias, None, None, training, momentum, eps)


def as_eager_by_statistics(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Maybe, var: Maybe, momentum: float, eps: float
) -> object:
    """`_native_batch_norm_legit_no_training`, likewise."""
    return as_eager(x, weight, bias, mean, var, False, momentum, eps)


EXACT_BATCH_NORM: Decompositions = {
    aten._native_batch_norm_legit_functional.default: as_eager,
    aten._native_batch_norm_legit.no_stats: as_eager_without_statistics,
    aten._native_batch_norm_legit_no_training.default: as_eager_by_statistics,
}
