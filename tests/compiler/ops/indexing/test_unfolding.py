"""Gradients of padding and windows, columns put back into images, and stacks, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from assay.compiler.entry.dynamo import assay
from tests.lowering import check

aten = torch.ops.aten


def image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("pads", [[2, 1, 1, 3], [0, 0, 2, 2], [1, 0, 0, 1], [4, 4], [1, 0, 0, 1, 1, 1]])
def test_gradient_of_padding_as_eager(kind: str, pads: list[int]) -> None:
    count = len(pads) // 2
    x = image(2, 3, 5, 6)[0] if count == 1 else image(2, 3, 5, 6)
    forward, backward = getattr(aten, f"{kind}_pad{count}d"), getattr(aten, f"{kind}_pad{count}d_backward")
    schedule = check(lambda g, x: (backward(g, x, pads),), torch.randn_like(forward(x, pads)), x)
    assert not schedule.counts.fallbacks


@pytest.mark.parametrize(("dim", "size", "step"), [(1, 3, 2), (2, 2, 3), (3, 4, 1), (0, 1, 1), (2, 6, 1)])
def test_gradient_of_unfold_as_eager(dim: int, size: int, step: int) -> None:
    gradient = torch.randn_like(image(2, 4, 6, 7).unfold(dim, size, step))
    schedule = check(lambda g: (aten.unfold_backward(g, [2, 4, 6, 7], dim, size, step),), gradient)
    assert not schedule.counts.fallbacks


@pytest.mark.parametrize(
    ("arguments", "fallbacks"),
    [
        (([3, 2], [1, 1], [1, 1], [1, 1]), {}),
        (([2, 3], [2, 1], [0, 1], [1, 1]), {}),
        (([2, 2], [1, 1], [0, 0], [2, 2]), {"aten.col2im": 1}),
    ],
)
def test_columns_to_image_as_eager(arguments: tuple[Any, ...], fallbacks: dict[str, int]) -> None:
    columns = torch.randn_like(aten.im2col(image(2, 3, 6, 7), *arguments))
    schedule = check(lambda c: (aten.col2im(c, [6, 7], *arguments),), columns)
    assert schedule.counts.fallbacks == fallbacks


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_stack_as_eager(mode: str) -> None:
    schedule = check(
        lambda x: (torch.stack([x, x + 1], 1), torch.stack([x, x * 2, x.exp()], -1), torch.stack([x])),
        image(2, 3, 4),
        mode=mode,
    )
    assert not schedule.counts.fallbacks


def test_compiled_gradients_as_eager() -> None:
    """On rows long enough to be cut at their edges."""

    def every(x: torch.Tensor) -> torch.Tensor:
        parts = (
            functional.pad(x, (2, 1, 1, 3), "reflect"),
            functional.pad(x, (2, 1, 1, 3), "replicate"),
            functional.unfold(x, 3, padding=1),
            x.unfold(2, 3, 2),
            functional.avg_pool2d(x, 3, 2, 1),
            functional.max_pool2d(x, 3, 2, 1),
            functional.interpolate(x, scale_factor=2),
        )
        return sum(((part * part).sum() for part in parts), torch.zeros(()))

    x = image(2, 3, 33, 40).requires_grad_()
    (expected,) = torch.autograd.grad(every(x), x)
    (found,) = torch.autograd.grad(torch.compile(every, backend=assay)(x), x)
    torch.testing.assert_close(found, expected)
