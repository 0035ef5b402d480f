"""The dtype of the statistics that batch norm saves for its backward.

On a CPU they are in float32 where the input is in halves and the parameters are not, as under autocast. Kernels on fake
tensors say that they have the dtype of the input.
"""

from __future__ import annotations

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from assay.compiler.ir.tensors.layout.fake_strides import retyped

aten = torch.ops.aten
BATCH_NORMS = frozenset({
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats),
    *(aten._native_batch_norm_legit_functional.default, aten._batch_norm_with_update.default),
    aten._batch_norm_with_update_functional.default,
})  # fmt: skip
SAVED = range(1, 3)
"""Where the mean and the reciprocal deviation of the batch are among the results."""


def kept_in(x: torch.Tensor, *parameters: object) -> torch.dtype:
    """The dtype of the statistics of a batch: that of `x`, but float32 beside parameters in float32 and, of halves, on
    a GPU."""
    if x.is_cuda:
        return torch.promote_types(x.dtype, torch.float32)
    given = [value for value in parameters if isinstance(value, torch.Tensor)]
    return torch.float32 if any(value.dtype is torch.float32 for value in given) else x.dtype


def with_saved_dtypes(
    args: tuple[object, ...], result: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> object:
    """The results of a batch norm, recorded by `tracer` under `mode`, whose saved statistics have the real dtype."""
    x, *parameters = args
    if not isinstance(x, torch.Tensor) or not isinstance(result, tuple | list):
        return result
    dtype = kept_in(x, *parameters)
    return tuple(
        retyped(value, dtype, tracer, mode) if place in SAVED and _is_other(value, dtype) else value
        for place, value in enumerate(result)
    )


def _is_other(value: object, dtype: torch.dtype) -> bool:
    return isinstance(value, FunctionalTensor) and bool(value.numel()) and value.dtype != dtype
