"""The repros of upstream bugs still show what they say; a torch that has mended one says so here, or in its docstring.

One that shows only with some vector instructions names them in its docstring, and is skipped without them.

Each runs once, in this process. With ASSAY_FRESH_PROCESSES=3 each runs that often, every time in a process of its own.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.harness.judge.ledger import is_among
from assay.suites.tables.upstream import KIND, KINDS
from tests.sources import ROOT

FOLDER = ROOT / "suites" / "upstream_bugs"
ON_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"))
REPROS = [
    pytest.param(path, marks=ON_GPU if "NVIDIA GPU" in path.read_text().split('"""')[1] else (), id=path.stem)
    for path in sorted(FOLDER.glob("*.py"))
    if not path.name.startswith("_")
]
MENDED = re.compile(r"Mended in torch (\d+\.\d+)")
NEEDED = re.compile(r"Shows only with (AVX-?\w+)")
PROCESSES = int(os.environ.get("ASSAY_FRESH_PROCESSES", "0"))


@pytest.mark.parametrize("path", REPROS)
def test_upstream_bug_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = path.read_text().split('"""')[1]
    assert "Seen with torch" in said, f"{path.name} names no versions"
    assert (kind := KIND.search(said)) and kind[1] in KINDS, f"{path.name} names no kind of {list(KINDS)}"
    needed = NEEDED.search(said)
    if needed and needed[1].replace("-", "") != (found := torch.backends.cpu.get_cpu_capability()):
        pytest.skip(f"shows only with {needed[1]}, and torch uses {found} here")
    mended = MENDED.search(said)
    expected = int(mended is not None and is_among(torch.__version__, f">={mended[1]}"))
    assert len(path.read_text().splitlines()) < 40, f"{path.name} is no minimal program"
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
        assert done.returncode == expected, f"{path.name} shows otherwise: {done.stdout}{done.stderr[-2000:]}"
    if not PROCESSES:
        monkeypatch.setattr(sys, "argv", [str(path)])
        torch._dynamo.reset()
        with torch.enable_grad():  # and back: a repro may turn them off
            found = runpy.run_path(str(path))["main"]()
        assert found == expected, f"the difference of {path.name} {'shows' if expected else 'no longer shows'}"


NEGATED = """
import triton
import triton.language as tl


@triton.jit
def negated(x, y):
    at = tl.arange(0, 128)
    tl.store(y + at, -tl.load(x + at))
"""


def test_negation_in_triton_subtracts_from_zero(tmp_path: Path) -> None:
    """Which is what the repro for a GPU is about: compiled for sm_90, without one."""
    pytest.importorskip("triton")
    from assay.compiler.toolchain.gpu.triton_build import Wanted, triton_code

    (path := tmp_path / "negated.py").write_text(NEGATED)
    text = triton_code(Wanted(str(path), "negated", ("*fp32", "*fp32"), True, (4,), 90, False)).asm["ptx"]
    assert "0f00000000" in text and re.search(r"sub\.(rn\.)?f32", text) and "neg." not in text, text
