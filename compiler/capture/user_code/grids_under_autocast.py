"""`affine_grid` under autocast: its product is in the dtype of autocast, as in eager.

    grid = places @ theta.mT, where `places` are the coordinates of the points, and a one

Recorded as one operator, the product lies below autocast (`suites/upstream_bugs/affine_grid_under_autocast.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

GRIDS = (F.affine_grid, torch.affine_grid_generator)


def grid_under_autocast(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The grid, in the dtype of autocast; None of other calls, and without autocast."""
    return _grid(*args, **kwargs) if func in GRIDS else None


def _grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor | None:
    """Shapes: `theta[n, k, k + 1], size (n, channels, *points) -> grid[n, *points, k]`"""
    if not torch.is_autocast_enabled(theta.device.type) or theta.dtype is not torch.float32 or align_corners is None:
        return None
    axes = len(size) - 2
    identity = torch.eye(axes, axes + 1, dtype=theta.dtype, device=theta.device).expand(size[0], axes, axes + 1)
    points = torch.ops.aten.affine_grid_generator.default(identity, size, align_corners).reshape(size[0], -1, axes)
    places = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    product = torch.bmm(places, theta.mT)
    return torch.ops.aten._unsafe_view.default(product, [size[0], *size[2:], axes])
