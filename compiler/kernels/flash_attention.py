"""Attention on the CPU by a kernel of our own, for heads of float32: what ATen's flash kernel gives, in less time.

    out, logs = softmax(q k^T * scale + mask) v, the logarithms of the rows' sums

ATen's kernel calls the library for products of a block of rows by a block of keys, which are small for short
sequences. It reaches 0.2 to 0.6 of the peak of two cores, and this one 0.3 to 0.75. Written out as products and a
softmax, scores go through memory twice. The C++ is `compiler/kernels/attention.h`, compiled once for each depth of
heads.

Where ATen's kernel gives something else, its result is returned: for scores that are NaN or infinite.
"""

from __future__ import annotations

import functools
import struct

import torch
from torch import Tensor

from assay.compiler.kernels.tiles import PANEL, ROWS, Tiled, has_wide_vectors
from assay.compiler.machine import number
from assay.compiler.toolchain.launch import Function
from assay.compiler.torch_stubs import empty_strided_cpu as _empty

DEPTHS = frozenset(range(16, 129, 16)) if has_wide_vectors() else frozenset[int]()
"""Elements of a head: whole vectors, and few enough that a block of queries stays in the first cache."""

_CALL = """const bool is_right = attend(
      (const f32*)v[0], (const f32*)v[1], (const f32*)v[2], (const f32*)v[3], (f32*)v[4], (f32*)v[5], (f32*)v[6],
      v[7], v[8], v[9], v[10], v[11], v[12] != 0, m::bits<f32>((i32)v[13]), Strides{v[14], v[15], v[16]},
      Strides{v[17], v[18], v[19]}, Strides{v[20], v[21], v[22]}, Strides{v[23], v[24], v[25]},
      Strides{v[26], v[27], v[28], v[29]});"""
_ANSWER = "  return PyBool_FromLong(is_right);\n"

_forward = torch._C._VariableFunctions._scaled_dot_product_flash_attention_for_cpu
_empty_like = torch.empty_like
_float32 = torch.float32


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention without dropout, and the logarithms of its rows' sums, as ATen's kernel gives them.

    Shapes: `q[b, h, s, d], k[b, h, t, d], v[b, h, t, d], mask[b | 1, h | 1, s | 1, t | 1] -> [b, h, s, d], [b, h, s]`,
    all float32, the elements of a head without gaps; the result lies as `q` does, the heads of a row's logarithms
    together.
    """
    b, h, s, d = q.shape
    t = k.shape[2]
    if not b * h * s * t:
        return torch.zeros_like(q), _empty((b, h, s), (s * h, 1, h), _float32).zero_()
    if t > number("attended_keys"):
        return _forward(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)
    of_q, of_k, of_v = q.stride(), k.stride(), v.stride()
    out = _empty_like(q)
    of_out = out.stride()
    logs = _empty((b, h, s), (s * h, 1, h), _float32)
    threads = max(1, min(torch.get_num_threads(), b * h * s * t * d * 4 // number("attention_flops_per_thread")))
    scratch = _empty((threads * (d + ROWS) * (t + PANEL),), (1,), _float32)
    of_mask: tuple[int, ...]
    if mask is None:
        place, of_mask = 0, (0, 0, 0, 0)
    else:
        place, of_mask = mask.data_ptr(), mask.expand(b, h, s, t).stride()
    is_right = of_out[3] == 1 and _kernel(d).load()[0](
        q.data_ptr(), k.data_ptr(), v.data_ptr(), place, out.data_ptr(), logs.data_ptr(), scratch.data_ptr(), threads,
        b, h, s, t, is_causal, _bits(scale), *of_q[:3], *of_k[:3], *of_v[:3], *of_out[:3], *of_mask,
    )  # fmt: skip
    if is_right:
        return out, logs
    return _forward(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)


def prepare(depth: int) -> None:
    """Compiles the kernel for heads of so many elements beside what the caller goes on to do."""
    _kernel(depth).prepare()


@functools.cache
def _kernel(depth: int) -> Tiled:
    head = f'extern "C" PyObject* PyBool_FromLong(long);\nconstexpr i64 DEPTH = {depth};\n'
    return Tiled("attention.h", [Function("attend_heads", 30, _CALL, _ANSWER)], head)


@functools.lru_cache(maxsize=64)
def _bits(x: float) -> int:
    """A float32 as an integer."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])
