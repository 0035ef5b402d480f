"""Who multiplies float32 matrices fastest on this machine: our own kernel, oneDNN or MKL.

    straight   x[m, k] w[k, n]          a layer, and the gradient of its input
    turned     x.t()[m, k] w[k, n]      the gradient of a weight

The defaults are times on two cores of an EPYC with AVX-512, 384 x 256 x 1024, in microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from assay.compiler.kernels import products
from assay.compiler.machine import Fact

ROWS, DEPTH, COLUMNS = 384, 256, 1024
OWN, ONEDNN, MKL = "own", "oneDNN", "MKL"


@functools.cache
def _left(is_turned: bool) -> Tensor:
    return torch.zeros(DEPTH, ROWS).t() if is_turned else torch.zeros(ROWS, DEPTH)


@functools.cache
def _right() -> Tensor:
    return torch.zeros(DEPTH, COLUMNS)


def _ways(is_turned: bool) -> dict[str, Callable[[], object]]:
    linear = torch.ops.mkldnn._linear_pointwise
    return {
        OWN: lambda: products.multiply(_left(is_turned), _right(), None),
        ONEDNN: lambda: linear(_left(is_turned), _right().t(), None, "none", [], ""),
        MKL: lambda: torch.mm(_left(is_turned), _right()),
    }


STRAIGHT = Fact("product of matrices", _ways(False), {OWN: 980, ONEDNN: 1074, MKL: 1109})
TURNED = Fact("product, first turned", _ways(True), {OWN: 1002, ONEDNN: 1324, MKL: 1265})


def is_own_fastest(is_turned: bool) -> bool:
    """Whether our own kernel multiplies large matrices fastest here, the first operand turned or not."""
    return (TURNED if is_turned else STRAIGHT).times().fastest(OWN, ONEDNN, MKL) == OWN


def is_onednn_faster() -> bool:
    """Whether oneDNN multiplies large matrices faster here than MKL."""
    return STRAIGHT.times().fastest(ONEDNN, MKL) == ONEDNN
