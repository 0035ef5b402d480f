"""What the recording of gradients needs beyond torch's own rules for symbols.

    affine_grid(theta, x.shape), interpolate(x, size, mode="bicubic", antialias=True)   in training, with dynamic sizes
    x[mask] = values                                                                    in training, with any sizes

Torch's gradients of the first two are kernels in C++ that raise where a size is a symbol. They are in Python here. That
of the last looks up what the mask chooses, a size that only data tells. Dynamo allows such sizes by an option, as it
would guard on them; a backward guards on nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.ir.graph.recording_lock import recording_lock

aten = torch.ops.aten


def affine_grid_gradient(grad: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """The gradient of `grid = places @ theta.mT`, where `places` are the coordinates of the points, and a one.

    Shapes: `grad[n, *points, k] -> dtheta[n, k, k + 1]`
    """
    n, axes = size[0], len(size) - 2
    identity = torch.eye(axes, axes + 1, dtype=grad.dtype, device=grad.device).expand(n, axes, axes + 1)
    points = aten.affine_grid_generator.default(identity, size, align_corners).reshape(n, -1, axes)
    places = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    return (places.mT @ grad.reshape(n, -1, axes)).mT


def resized_gradient(
    grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    """The form of `_upsample_bicubic2d_aa_backward`: that of the input, in rows."""
    return grad.new_empty(input_size)


IN_PYTHON: dict[tuple[torch._ops.OpOverload, DispatchKey], Callable[..., Any]] = {
    (aten.affine_grid_generator_backward.default, DispatchKey.CompositeImplicitAutograd): affine_grid_gradient,
    (aten._upsample_bicubic2d_aa_backward.default, DispatchKey.Meta): resized_gradient,
}


@contextmanager
def symbols_in_gradients(fake_mode: FakeTensorMode) -> Iterator[None]:
    """While it is open, these functions record gradients, and sizes may be of the data where the mode has symbols."""
    with _in_python(), _sizes_of_the_data(fake_mode):
        yield


@contextmanager
def _in_python() -> Iterator[None]:
    """One recording at a time."""
    with recording_lock:
        added = [(op, key) for op, key in IN_PYTHON if key not in op.py_kernels]
        for op, key in added:
            op.py_kernels[key] = IN_PYTHON[op, key]
            op._dispatch_cache.clear()
        try:
            yield
        finally:
            for op, key in added:
                del op.py_kernels[key]
                op._dispatch_cache.clear()


@contextmanager
def _sizes_of_the_data(fake_mode: FakeTensorMode) -> Iterator[None]:
    shapes = fake_mode.shape_env
    if shapes is None:
        yield
        return
    before = shapes.settings
    shapes.settings = replace(before, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        shapes.settings = before
