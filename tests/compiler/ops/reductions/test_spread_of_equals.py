"""What has no spread has none: equal numbers have no variance, and equal tangents give a norm no gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.compiler.entry.dynamo import assay


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [0, 1])
def test_lowering_gives_equal_numbers_no_variance(dtype: torch.dtype, dim: int) -> None:
    def spread(x: Tensor) -> tuple[Tensor, ...]:
        return x.var(dim), x.std(dim), *torch.var_mean(x, dim, correction=0)

    torch._dynamo.reset()
    x = torch.tensor([2.1234567, -0.3, 1e-3, 777.7]).to(dtype).repeat(7, 1)
    x = x if dim == 0 else x.t().contiguous()
    variance, deviation, biased, mean = torch.compile(spread, backend=assay, options={"fallback": "error"})(x)
    assert not variance.any() and not deviation.any() and not biased.any()
    assert torch.equal(mean, x.select(dim, 0))


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group": lambda x: F.group_norm(x, 3),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("length", [2, 7, 300])
def test_lowering_gives_equal_tangents_no_gradient(name: str, length: int) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(NORMS[name], backend=assay, options={"fallback": "error"})
    x = torch.randn(2, 6, length, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x), x, torch.ones_like(x))
    assert not gradient.any()
