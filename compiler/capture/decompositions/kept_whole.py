"""Interpolation, and some activations and losses, recorded whole. Torch's dispatcher would take them apart before.

    interpolate(x, scale_factor=2, mode="bilinear")   ->   upsample_bilinear2d(x, ...), not 40 calls of index and mul

The operators' own records and ATen's kernels are faster than the pieces and round as eager does. Where sizes are
symbols the pieces stay, as the operators would guard on the sizes. Images of bytes are an exception: the pieces round
them otherwise than the operators, by as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.ir.graph.recording_lock import recording_lock
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC, has_symbols

NAMES = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
).split()
OTHERS = "softshrink hardshrink multi_margin_loss multilabel_margin_loss_forward".split()
WHOLE = [
    *(getattr(getattr(torch.ops.aten, name), overload) for name in NAMES for overload in ("default", "vec")),
    *(getattr(torch.ops.aten, name).default for name in OTHERS),
]
KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)

_taken: dict[tuple[torch._ops.OpOverload, DispatchKey], Callable[..., Any]] = {}
"""What takes these operators apart, while they are whole."""


@contextmanager
def interpolation_whole(fake_mode: FakeTensorMode, inputs: Iterable[object]) -> Iterator[None]:
    """As `operators_whole`, if no input has a symbol or one has bytes. One recording at a time.

    That there are symbols tells nothing: Dynamo has one for the number that a counter of batches holds.
    """
    given = list(inputs)
    has_bytes = any(isinstance(value, torch.Tensor) and value.dtype is torch.uint8 for value in given)
    is_symbolic = any(isinstance(value, SYMBOLIC) or has_symbols(value) for value in given)
    with operators_whole(has_bytes or not (fake_mode.shape_env is None or is_symbolic)):
        yield


@contextmanager
def operators_whole(are_whole: bool = True) -> Iterator[None]:
    """While it is open, these operators go to ATen; or, within another such recording, are taken apart."""
    with recording_lock:
        were_whole = bool(_taken)
        _switch(are_whole)
        try:
            yield
        finally:
            _switch(were_whole)


def _switch(are_whole: bool) -> None:
    if are_whole == bool(_taken):
        return
    if are_whole:
        _taken.update({(op, key): op.py_kernels.pop(key) for op in WHOLE for key in KEYS if key in op.py_kernels})
    else:
        for (operator, key), kernel in _taken.items():
            operator.py_kernels[key] = kernel
        _taken.clear()
    for operator in WHOLE:
        operator._dispatch_cache.clear()
