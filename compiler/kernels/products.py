"""Products of float32 matrices on the CPU by a kernel of our own.

    multiply(x, w, bias) = x w + bias           multiply_batch(x, w)[b] = x[b] w[b]

Of the peak of two cores (234 GFLOP/s) it reaches 0.8 to 0.9 where libraries reach 0.5 to 0.85, which is said where they
are chosen between (`compiler/passes/products/multiply_matrices.py`). Sums are of blocks of 192 products, or of two
halves where there are fewer than 384: MKL's with AVX-512, whose bits most results then have. The C++ is
`compiler/kernels/products.h`.

Source: panels are packed for the caches as in K. Goto and R. A. van de Geijn, Anatomy of high-performance matrix
multiplication, 2008.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.kernels.tiles import PANEL, SUMMED, Tiled
from assay.compiler.machine import number
from assay.compiler.toolchain.launch import Function
from assay.compiler.torch_stubs import empty_strided_cpu as _empty

DEEP, TURNED = 6 * SUMMED, 240
"""How much of the depth a packed panel has at most, and how many rows of a transposed operand are turned together."""

_ONE = """multiply((const f32*)v[0], {v[1], v[2]}, (const f32*)v[3], {v[4], v[5]}, (const f32*)v[6], (f32*)v[7],
      (f32*)v[8], v[9], v[10], v[11], v[12]);"""
_MANY = """multiply_batch((const f32*)v[0], v[1], {v[2], v[3]}, (const f32*)v[4], v[5], {v[6], v[7]}, (f32*)v[8],
      (f32*)v[9], v[10], v[11], v[12], v[13], v[14]);"""

_KERNELS = Tiled(
    "products.h",
    [Function("multiply_matrices", 13, _ONE), Function("multiply_batches", 15, _MANY)],
    f"constexpr i64 DEEP = {DEEP}, TURNED = {TURNED};\n",
)
prepare = _KERNELS.prepare

_float32 = torch.float32
_mm, _addmm, _bmm = torch.mm, torch.addmm, torch.bmm


def may_be_shortened() -> bool:
    """Whether the user lets the library round operands to fewer bits, which Dynamo does not guard. Cost: 0.3 us."""
    return torch.backends.mkldnn.matmul.fp32_precision in ("tf32", "bf16")  # type: ignore[attr-defined]


def multiply(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The product of two matrices, plus a row where there is one.

    Shapes: `x[m, k], w[k, n], bias[n] -> [m, n]`, all float32; the result has no gaps.
    """
    rows, depth = x.shape
    columns = w.shape[1]
    x_row, x_depth = x.stride()
    w_depth, w_column = w.stride()
    is_taken = rows and depth and columns and 1 in (x_row, x_depth) and 1 in (w_depth, w_column)
    if not is_taken or (bias is not None and bias.stride(0) != 1) or may_be_shortened():
        return _mm(x, w) if bias is None else _addmm(bias, x, w)
    out = _empty((rows, columns), (columns, 1), _float32)
    threads = max(1, min(torch.get_num_threads(), 2 * rows * depth * columns // number("product_flops_per_thread")))
    scratch = _scratch(threads, x_depth != 1)
    _KERNELS.load()[0](
        x.data_ptr(), x_row, x_depth, w.data_ptr(), w_depth, w_column, 0 if bias is None else bias.data_ptr(),
        out.data_ptr(), scratch.data_ptr(), threads, rows, depth, columns,
    )  # fmt: skip
    return out


def multiply_batch(x: Tensor, w: Tensor) -> Tensor:
    """The products of the matrices of two batches, one thread each.

    Shapes: `x[b, m, k], w[b, k, n] -> [b, m, n]`, all float32; the result has no gaps.
    """
    batch, rows, depth = x.shape
    columns = w.shape[2]
    x_step, x_row, x_depth = x.stride()
    w_step, w_depth, w_column = w.stride()
    is_taken = batch and rows and depth and columns and 1 in (x_row, x_depth) and 1 in (w_depth, w_column)
    if not is_taken or may_be_shortened():
        return _bmm(x, w)
    out = _empty((batch, rows, columns), (rows * columns, columns, 1), _float32)
    threads = max(
        1, min(torch.get_num_threads(), batch, 2 * batch * rows * depth * columns // number("product_flops_per_thread"))
    )
    scratch = _scratch(threads, x_depth != 1)
    _KERNELS.load()[1](
        x.data_ptr(), x_step, x_row, x_depth, w.data_ptr(), w_step, w_depth, w_column, out.data_ptr(),
        scratch.data_ptr(), threads, batch, rows, depth, columns,
    )  # fmt: skip
    return out


def _scratch(threads: int, is_turned: bool) -> Tensor:
    return _empty((threads * DEEP * (PANEL + TURNED if is_turned else PANEL),), (1,), _float32)
