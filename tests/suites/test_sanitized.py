"""The sanitized runs see what a kernel does wrong, and nothing where it does right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.suites.sanitized import Sanitizer, reports_in

SANITIZER = Sanitizer.find()
CALLED = """
import torch
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import Function, load_text

TEXT = '''
static void fill(f32* memory, i64 count, i64 shift) {{ memory[count] = (f32)(1 << shift); }}
'''
(fill,) = load_text(TEXT, [Function("fill", 3, "fill((f32*)v[0], v[1], v[2]);")], Options(cache={cache!r}))
memory = torch.zeros(4)
for count, shift in {calls}:
    fill(memory.data_ptr(), count, shift)
"""
CALLS = {(3, 2): "", (4, 2): "heap-buffer-overflow", (3, 40): "shift exponent 40 is too large"}
"""A count beside which is written, a number of bits to shift by: and what is reported."""


@pytest.mark.skipif(SANITIZER is None, reason="the C++ compiler has no sanitizers")
def test_sanitizers_report_a_bad_kernel(tmp_path: Path) -> None:
    assert SANITIZER is not None
    reports = tmp_path / "reports"
    reports.mkdir()
    text = CALLED.format(cache=str(tmp_path / "cache"), calls=list(CALLS))
    assert SANITIZER.run([sys.executable, "-c", text], reports) == 0
    found, wanted = list(reports_in(reports)), list(filter(None, CALLS.values()))
    assert len(found) == len(wanted) and all(kind in "".join(found) for kind in wanted), found
