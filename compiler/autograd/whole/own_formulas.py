"""Formulas of gradients of our own, in the places of those of the engine that ask a saved tensor for its history.

What is recorded has none: see `compiler/autograd/whole/traced.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def solved(
    gradients: Sequence[Tensor | None], needs: Sequence[bool], a: Tensor, is_left: bool, *rest: Any
) -> list[Tensor | None]:
    """Those of `a` and `b` in `a @ x = b`, or in `x @ a = b`, as `torch.linalg.solve` has them; x comes last.

    The engine's own asks `a` whether it requires grad, whatever is in `needs`, and gives None for it where it does not.
    """
    (gradient,), x = gradients, rest[-1]
    if gradient is None:
        return [None, None]
    of_b = torch.linalg.solve(a.mH, gradient, left=is_left)  # that of `a` follows from it, too
    if not needs[0]:
        return [None, of_b]
    is_vector = x.dim() == 1 or (x.dim() == a.dim() - 1 and x.shape == a.shape[:-1])
    rows, columns = (each.unsqueeze(-1) if is_vector else each for each in (of_b, x))
    return [-(rows @ columns.mH if is_left else columns.mH @ rows), of_b if needs[1] else None]


FORMULAS: dict[str, Callable[..., Any]] = {"LinalgSolveExBackward0": solved}
"""By the names of the nodes of autograd."""
