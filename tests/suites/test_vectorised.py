"""`python -m assay.suites.vectorised` on a few functions: the whole takes minutes."""

from __future__ import annotations

import pytest
import torch

from assay.compiler.toolchain.build import find_compiler
from assay.suites.vectorised import scalar_pairs

PAIRS = [("log1p", "exp"), ("tanh", "log1p"), ("exp", "exp"), ("log", "sigmoid"), ("lgamma", "abs"), ("sigmoid", "sin")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_cpp_functions_of_functions_are_vector_code(dtype: torch.dtype) -> None:
    compiler = find_compiler("")
    if compiler is None or "Free Software Foundation" not in compiler.version:
        pytest.skip("the report is asked of gcc")
    assert list(scalar_pairs(PAIRS, dtype)) == []
