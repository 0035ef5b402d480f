"""Products of float32 matrices by a kernel of our own: `assay::multiply` and `assay::multiply_batch`.

What they compute is said in `compiler/kernels/products.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.kernels import product_rates, products, tiles
from assay.compiler.ops.registry import Kind, record

_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define("multiply(Tensor x, Tensor w, Tensor? bias) -> Tensor")
_LIBRARY.define("multiply_batch(Tensor x, Tensor w) -> Tensor")


def _multiply(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[1]))


def _multiply_batch(x: Tensor, w: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:2], w.shape[2]))


_LIBRARY.impl("multiply", products.multiply, "CPU")
_LIBRARY.impl("multiply", _multiply, "Meta")
_LIBRARY.impl("multiply_batch", products.multiply_batch, "CPU")
_LIBRARY.impl("multiply_batch", _multiply_batch, "Meta")

multiply = torch.ops.assay.multiply.default
multiply_batch = torch.ops.assay.multiply_batch.default
prepare_multiply = products.prepare
may_be_shortened = products.may_be_shortened
has_wide_vectors = tiles.has_wide_vectors
is_own_fastest = product_rates.is_own_fastest
is_onednn_faster = product_rates.is_onednn_faster

record(Kind.contraction, None, "assay.multiply", "assay.multiply_batch")
