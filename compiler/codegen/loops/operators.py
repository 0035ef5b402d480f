"""What every code generator knows of operators and types: which are dear, and which are computed in a wider type."""

from __future__ import annotations

import torch

HALVES = (torch.float16, torch.bfloat16)
"""Kernels compute with these in float32."""
COSTLY: frozenset[str] = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc "
    "erfcx erfinv gelu gelu_slope ndtri i0 i0e i1 i1e lgamma digamma trigamma zeta hypot sigmoid pow fmod "
    "remainder_float floor_div_float".split()
)
"""Operators that are worth keeping the value of, rather than computing it again."""
