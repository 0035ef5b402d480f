"""Which kernels ask for vectors of 64 bytes, where the machine has them.

GCC takes vectors of 32 bytes by itself on most machines that have both. A kernel that computes much takes 0.55 to
0.85 of the time with those of 64 (Xeon with AVX-512, GCC 12, `log1p`, `softplus`, `gelu`, bfloat16). A kernel with
short rows takes up to 1.4 times as long: what is left of a row after whole vectors is most of it. One that waits for
memory takes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.compiler.codegen.loops.nest import Nest
from assay.compiler.codegen.loops.operators import COSTLY, HALVES
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Call, Expr, Load, Loop, Reduce
from assay.compiler.ir.loops.rewrite import nodes

LONG = 128
"""Iterations of an innermost loop from which on the wider vectors pay: eight vectors of float32."""


def is_wide(nests: Sequence[Nest]) -> bool:
    """Whether the nests compute much, and every loop that becomes vector code is long or of unknown length."""
    found = list(nodes(*(store.expr for nest in nests for store in nest.stores)))
    inner = [nest.loops[-1] for nest in nests if nest.loops] + [e.loops[-1] for e in found if isinstance(e, Reduce)]
    return any(map(_computes, found)) and all(map(_is_long, inner))


def _computes(expr: Expr) -> bool:
    if isinstance(expr, Call):
        return expr.op in COSTLY
    return isinstance(expr, Load) and expr.dtype in HALVES


def _is_long(loop: Loop) -> bool:
    return not isinstance(loop.extent, Int) or loop.extent.value >= LONG
