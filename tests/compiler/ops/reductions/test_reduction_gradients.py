"""What reductions and scans give, and their gradients, where values are zero, NaN, infinite or equal.

Left out is what eager itself leaves open: which of equal values `topk` names. The mean that `var_mean` gives of an
infinite value depends in eager on where the value stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

Reduction = Callable[[Tensor], object]

NAN, INF = float("nan"), float("inf")
COLUMNS = [
    [1.5, -2.0, 3.0, 0.25], [0.0, 2.0, 3.0, -1.0], [0.0, 0.0, 3.0, -1.0], [0.0, 0.0, 0.0, 0.0], [-0.0, 0.0, 1.0, -1.0],
    [NAN, 2.0, 1.0, 3.0], [NAN, 1.0, NAN, 0.0], [NAN, 0.0, 0.0, 2.0], [NAN, NAN, NAN, NAN], [INF, NAN, 0.0, 1.0],
    [INF, 2.0, 1.0, 3.0], [INF, INF, 1.0, 0.0], [-INF, 2.0, 1.0, 3.0], [-INF, -INF, -INF, -INF], [INF, -INF, 1.0, 0.0],
    [2.0, 2.0, 1.0, 2.0], [1.0, 1.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0],
]  # fmt: skip

WHOLE: dict[str, Callable[..., object]] = {
    name: getattr(torch, name)
    for name in (
        "prod", "sum", "mean", "nansum", "nanmean", "amax", "amin", "max", "min", "var", "std", "median", "nanmedian",
    )
}  # fmt: skip
ALONG: dict[str, Callable[..., object]] = {
    name: getattr(torch, name)
    for name in (
        "cumprod", "cumsum", "logcumsumexp", "cummax", "cummin", "logsumexp", "softmax", "log_softmax", "mode", "sort",
    )
}  # fmt: skip


def norm_of(p: float) -> Callable[..., object]:
    return lambda x, *dims: torch.linalg.vector_norm(x, p, *dims)


NORMS = {f"norm {p}": norm_of(p) for p in (0, 0.5, 1, 2, 3, -1, INF, -INF)}


def along(reduction: Callable[..., object]) -> Reduction:
    return lambda x: reduction(x, 0)


REDUCTIONS: dict[str, Reduction] = {
    **WHOLE,
    **NORMS,
    **{f"{name} along": along(each) for name, each in {**WHOLE, **ALONG, **NORMS}.items()},
    "aminmax": torch.aminmax,
    "aminmax along": lambda x: torch.aminmax(x, dim=0),
    "kthvalue": lambda x: torch.kthvalue(x, 2, 0),
    "quantile": lambda x: torch.quantile(x, 0.5, 0),
    "dist": lambda x: torch.dist(x, torch.ones_like(x)),
}


def results(reduction: Reduction, x: Tensor) -> list[Tensor | None]:
    """What it gives, then the gradient by tangents that differ. None where no gradient flows."""
    leaf = x.clone().requires_grad_()
    found = reduction(leaf)
    made: Sequence[Tensor] = [found] if isinstance(found, Tensor) else list(found)  # type: ignore[call-overload]
    slopes = [each for each in made if each.requires_grad]
    tangents = [torch.arange(1.0, each.numel() + 1).view_as(each) for each in slopes]
    return [*(each.detach() for each in made), *torch.autograd.grad(slopes, leaf, tangents, allow_unused=True)]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_lowering_gives_eagers_gradients_of_reductions_at_special_values(name: str) -> None:
    reduction = REDUCTIONS[name]
    torch._dynamo.reset()
    compiled = torch.compile(reduction, backend=assay, options={"fallback": "error"})
    whole = torch.tensor(COLUMNS).t().contiguous()
    for x in (whole,) if name.endswith("along") else whole.unbind(1):
        expected, found = results(reduction, x.contiguous()), results(compiled, x.contiguous())
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None), x
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True, msg=f"{x}: {one}, {other}")
