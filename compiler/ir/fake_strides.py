"""Operators whose kernels on fake tensors say other strides than the real ones give, where their arguments lie in
different ways: there, the strides that the iteration over the arguments gives are put in.

    with x of 2 x 4 in columns and y of one element: fake logical_or(y, x) is in rows, the real one in columns
"""

from __future__ import annotations

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import (
    PythonKeyTracer,
    disable_proxy_modes_tracing,
    get_proxy_slot,
    track_tensor_tree,
)

aten = torch.ops.aten

WRONG = frozenset(
    {
        aten.copysign.Tensor,
        aten.div.Tensor_mode,
        aten.heaviside.default,
        aten.logaddexp.default,
        aten.logaddexp2.default,
        aten.logical_and.default,
        aten.logical_or.default,
        aten.logical_xor.default,
        aten.logit_backward.default,
        aten.native_dropout_backward.default,
        aten.special_xlog1py.default,
        aten.threshold_backward.default,
        aten.xlogy.Tensor,
    }
)
"""Each takes two tensors first. Found by running every pointwise operator of torch 2.13 on tensors that lie in
different ways, real and fake."""


def with_strides(
    args: tuple[object, ...], result: object, tracer: PythonKeyTracer, mode: FunctionalTensorMode
) -> object:
    """The result of such a call, recorded by `tracer` under `mode`, with the strides of the real one."""
    if not isinstance(result, FunctionalTensor) or not all(isinstance(arg, FunctionalTensor) for arg in args[:2]):
        return result
    fake = torch._from_functional_tensor(result.elem)
    one, other = (_inner(arg) for arg in args[:2])
    with disable_proxy_modes_tracing():
        strides = aten.ne.Tensor(one, other).stride()
        if strides == fake.stride():
            return result
        relaid = torch.empty_strided(fake.shape, strides, dtype=fake.dtype, device=fake.device)
    proxy = get_proxy_slot(fake, tracer).proxy
    track_tensor_tree(relaid, proxy, constant=None, tracer=tracer)
    proxy.node.meta["val"] = relaid
    return FunctionalTensor(torch._to_functional_tensor(relaid), mode)


def _inner(value: object) -> torch.Tensor:
    assert isinstance(value, FunctionalTensor)
    torch._sync(value)
    return torch._from_functional_tensor(value.elem)
