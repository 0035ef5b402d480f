"""Operators that torch takes apart before a recording sees them, held to what eager's kernels refuse.

    one_hot(float32[8], 3)   ->   pieces that take floats, where eager's kernel raises

While a call is recorded, each of them first asks the kernel, and is then taken apart as before.

Eager takes `stft` apart in other pieces. Their gradient with respect to memory that overlaps itself is another: each
element has the mean of what flows to the elements that share its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.recording_lock import recording_lock
from assay.compiler.ir.tensors.layout.strides import overlaps_itself
from assay.compiler.ir.tensors.refusals import refuse_call

aten = torch.ops.aten
NAMES = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa "
    "hardshrink softshrink multi_margin_loss multilabel_margin_loss_forward one_hot native_batch_norm "
    "lstm gru rnn_tanh rnn_relu stft istft pad_sequence"
).split()
PACKETS = [getattr(aten, name) for name in NAMES if hasattr(aten, name)]
IN_PYTHON = (aten.matmul.out, *(getattr(packet, one) for packet in PACKETS for one in packet.overloads()))
"""Operators that torch's dispatcher may take apart in Python."""
IN_ROWS = (aten.upsample_nearest1d, aten._upsample_nearest_exact1d)
"""Those whose pieces lie as their argument does, and whose results are in rows."""
KEYS = {DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd}

Kernel = Callable[..., Any]


@contextmanager
def refusing_as_eager() -> Iterator[None]:
    """While it is open, these operators raise what eager's kernels raise. One recording at a time."""
    with recording_lock:
        kernels = {(op, key): op.py_kernels[key] for op in IN_PYTHON for key in op.py_kernels.keys() & KEYS}
        for (op, key), kernel in kernels.items():
            op.py_kernels[key] = _asking(op, kernel)
        _look_up_again()
        try:
            yield
        finally:
            for (op, key), kernel in kernels.items():
                op.py_kernels[key] = kernel
            _look_up_again()


def _asking(op: torch._ops.OpOverload, kernel: Kernel) -> Kernel:
    def ask(*args: Any, **kwargs: Any) -> Any:
        refuse_call(op, args, kwargs)
        if op is aten.stft.center and args[0].requires_grad and overlaps_itself(args[0]):
            raise Unsupported("the program takes the gradient of stft over memory that overlaps itself")
        made = kernel(*args, **kwargs)
        return made.contiguous() if op.overloadpacket in IN_ROWS else made

    return ask


def _look_up_again() -> None:
    for op in IN_PYTHON:
        op._dispatch_cache.clear()
