"""Operators whose kernels on fake tensors say other dtypes than the real ones give, and the dtypes in their place.

what batch norm saves for its backward    in float32 where the input is in halves and the parameters are not, as
                                          under autocast; the fakes have the dtype of the input
what layer and group norm save            the same, on a CPU
binary_cross_entropy_with_logits          in bfloat16 with weights in float32; before torch 2.13 the fake is in
                                          float32
"""

from __future__ import annotations

import functools

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from assay.compiler.ir.tensors.layout.fake_strides import retyped
from assay.compiler.ir.tensors.refusals import as_eager

aten = torch.ops.aten
BATCH_NORMS = frozenset({
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats),
    *(aten._native_batch_norm_legit_functional.default, aten._batch_norm_with_update.default),
    aten._batch_norm_with_update_functional.default,
})  # fmt: skip
NORMS = frozenset({aten.native_layer_norm.default, aten.native_group_norm.default})
LOSS = aten.binary_cross_entropy_with_logits.default
OPERANDS = 4
"""The tensors that the loss takes: numbers, targets, weights, and weights of the positive ones."""
WRONG = BATCH_NORMS | NORMS | {LOSS}
SAVED = range(1, 3)
"""Where the mean and the reciprocal deviation are among the results."""


def kept_in(x: torch.Tensor, *parameters: object) -> torch.dtype:
    """The dtype of the statistics of a batch: that of `x`, but float32 beside parameters in float32 and, of halves, on
    a GPU."""
    if x.is_cuda:
        return torch.promote_types(x.dtype, torch.float32)
    given = [value for value in parameters if isinstance(value, torch.Tensor)]
    return torch.float32 if any(value.dtype is torch.float32 for value in given) else x.dtype


def with_dtypes(
    func: object, args: tuple[object, ...], result: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> object:
    """The results of such a call, recorded by `tracer` under `mode`, in the dtypes of the real ones."""
    if func in BATCH_NORMS or func in NORMS:
        is_right = func in NORMS and isinstance(args[0], torch.Tensor) and not args[0].is_cpu
        return result if is_right else _with_saved_dtypes(args, result, tracer, mode)
    given = tuple(value.dtype if isinstance(value, torch.Tensor) else None for value in args[:OPERANDS])
    if isinstance(result, FunctionalTensor) and result.dtype != (dtype := _dtype_of_loss(given)):
        return retyped(result, dtype, tracer, mode)
    return result


@functools.cache
def _dtype_of_loss(dtypes: tuple[torch.dtype | None, ...]) -> torch.dtype:
    """Of operands in these dtypes, or left out. Asked of the kernel."""
    with as_eager():
        operands = [None if dtype is None else torch.ones(1, dtype=dtype, device="cpu") for dtype in dtypes]
        return LOSS(*operands, reduction=0).dtype


def _with_saved_dtypes(
    args: tuple[object, ...], result: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> object:
    x, *parameters = args
    if not isinstance(x, torch.Tensor) or not isinstance(result, tuple | list):
        return result
    dtype = kept_in(x, *parameters)
    return tuple(
        retyped(value, dtype, tracer, mode) if place in SAVED and _is_other(value, dtype) else value
        for place, value in enumerate(result)
    )


def _is_other(value: object, dtype: torch.dtype) -> bool:
    return isinstance(value, FunctionalTensor) and value.dtype != dtype and bool(value.numel())
