"""Discovering the suite leaves Triton as it was: the kernels of the suite alone are interpreted."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("triton")
PROGRAM = """
import assay.suites.semantics.custom_operators
import triton.language as tl
from triton.runtime.jit import JITFunction
assert isinstance(tl.cdiv, JITFunction), type(tl.cdiv)
"""


def test_tritons_own_functions_are_compiled_where_the_suite_was_discovered_first() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
