"""The functions of CUDA's device library that kernels call, where Triton interprets them: by torch, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def _interpreted(function: Any) -> Callable[..., Any]:
    """The function on tensors of Triton's interpreter, elementwise."""

    def run(*values: Any) -> Any:
        given = torch.broadcast_tensors(*(torch.from_numpy(np.array(value.handle.data)) for value in values))
        result = function(*given).numpy()
        dtype = values[0].dtype.scalar
        made = result if result.dtype != bool else result.astype(np.int32)
        kind = dtype if result.dtype != bool else tl.int32
        is_block = any(value.type.is_block() for value in values)
        return tl.tensor(TensorHandle(made, kind), tl.block_type(kind, list(made.shape)) if is_block else kind)

    return run


exp, exp2, expm1 = map(_interpreted, (torch.exp, torch.exp2, torch.expm1))
log, log2, log10, log1p = map(_interpreted, (torch.log, torch.log2, torch.log10, torch.log1p))
sin, cos, tan = map(_interpreted, (torch.sin, torch.cos, torch.tan))
asin, acos, atan, atan2 = map(_interpreted, (torch.asin, torch.acos, torch.atan, torch.atan2))
sinh, cosh, tanh = map(_interpreted, (torch.sinh, torch.cosh, torch.tanh))
asinh, acosh, atanh = map(_interpreted, (torch.asinh, torch.acosh, torch.atanh))
erf, erfc, erfinv = map(_interpreted, (torch.erf, torch.erfc, torch.erfinv))
erfcx = _interpreted(torch.special.erfcx)
lgamma, normcdfinv = map(_interpreted, (torch.lgamma, torch.special.ndtri))
cyl_bessel_i0, cyl_bessel_i1 = map(_interpreted, (torch.special.i0, torch.special.i1))
floor, ceil, trunc, rint = map(_interpreted, (torch.floor, torch.ceil, torch.trunc, torch.round))
sqrt, rsqrt, signbit = map(_interpreted, (torch.sqrt, torch.rsqrt, torch.signbit))
pow, fmod, hypot = map(_interpreted, (torch.pow, torch.fmod, torch.hypot))
copysign, nextafter = map(_interpreted, (torch.copysign, torch.nextafter))
