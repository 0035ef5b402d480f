"""`native_dropout` as ATen has it, with the same numbers of the same generator, about six times as fast.

ATen draws one number after the other, 7 ns each; `kernels/mersenne.h` makes them by the block. The first call of a
process compares the two: where they differ (ATen draws by MKL on Intel's processors), or there is no compiler, ATen
stays. So it does for small tensors, other dtypes, and layouts whose order of drawing is not that of memory.

Source: M. Matsumoto and T. Nishimura, Mersenne twister, 1998; for the state and the numbers made of it,
aten/src/ATen/core/MT19937RNGEngine.h and aten/src/ATen/core/DistributionsHelper.h, torch 2.13.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from assay.compiler.errors import BuildError
from assay.compiler.machine import number
from assay.compiler.options import Options
from assay.compiler.toolchain import build as _build
from assay.compiler.toolchain.cache import fetch, key_of

BITS = 53
"""Of a number that ATen draws to compare with a probability."""


def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`aten.native_dropout`: x times 0 or 1 / (1 - p), and the mask of what was kept."""
    dropout = _dropout() if train is not False and 0 <= p <= 1 and is_ours(x) else None
    if dropout is None:
        return torch.ops.aten.native_dropout.default(x, p, train)
    out, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    keep = 1.0 - p
    scale = 0.0 if keep == 0 else 1.0 / keep
    _draw(dropout, torch.default_generator, keep, scale, mask, x, out)
    return out, mask


def bernoulli(x: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """`aten.bernoulli.p`: of what `x` is only its shape counts; masks are drawn as those of dropout are."""
    if generator is None and x.dtype is torch.bool and 0 <= p <= 1 and _is_drawn_for(x) and (draw := _dropout()):
        mask = torch.empty_like(x)
        _draw(draw, torch.default_generator, p, 1.0, mask)
        return mask
    return torch.ops.aten.bernoulli.p(x, p, generator=generator)


def is_ours(x: Tensor) -> bool:
    """Whether a tensor is one that is drawn for here."""
    is_recorded = x.requires_grad and torch.is_grad_enabled()
    return x.dtype is torch.float32 and _is_drawn_for(x) and not x.is_neg() and not is_recorded


def _is_drawn_for(x: Tensor) -> bool:
    if type(x) is not Tensor or x.device.type != "cpu" or not x.is_contiguous():
        return False
    return x.numel() >= number("parallel_dropout_elements")


Dropout = Callable[[int, int, float, int, int, int | None, int | None], None]


def _draw(
    dropout: Dropout, generator: torch.Generator, keep: float, scale: float, mask: Tensor, *scaled: Tensor
) -> None:
    """Fills the mask and, where `scaled` is an input and its result, the result.

    The generator is where ATen would have left it.
    """
    state = generator.get_state()
    places = [tensor.data_ptr() for tensor in scaled] if scaled else [None, None]
    dropout(state.data_ptr(), math.ceil(keep * 2**BITS), scale, mask.numel(), mask.data_ptr(), *places)
    generator.set_state(state)


@functools.cache
def _dropout() -> Dropout | None:
    """The compiled function, if its numbers are those of ATen here."""
    options = Options.of(None, None)
    compiler = _build.find_compiler(options.cxx)
    if compiler is None:
        return None
    source = Path(__file__).with_name("mersenne.h").read_text()
    key = key_of([source], compiler.version, *_build.FLAGS)
    try:
        path = fetch(options.cache, key, functools.partial(_build.build, [source], compiler))
        dropout = ctypes.PyDLL(str(path)).dropout  # keeps the interpreter's lock: no other thread draws meanwhile
    except (BuildError, OSError):
        return None
    word, pointer = ctypes.c_uint64, ctypes.c_void_p
    dropout.argtypes = (pointer, word, ctypes.c_float, ctypes.c_int64, pointer, pointer, pointer)
    dropout.restype = None
    return dropout if _agrees(dropout) else None


def _agrees(dropout: Dropout) -> bool:
    """Whether a generator that has drawn an odd number of words gives the same mask, and is left in the same state."""
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for generator in (ours, theirs):
        torch.empty(1, dtype=torch.int32).random_(generator=generator)
    masks = [torch.empty(1001, dtype=torch.bool) for _ in range(2)]
    _draw(dropout, ours, 0.7, 1.0, masks[0])
    masks[1].bernoulli_(0.7, generator=theirs)
    return torch.equal(*masks) and torch.equal(ours.get_state(), theirs.get_state())
