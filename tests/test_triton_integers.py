"""Kernels on integers compile for a GPU, and give eager's numbers: shapes that meet in a loop, numbers out of range."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import commands

CASES = """
import torch
from harness.case import case


def numbers(least, end, *shape, dtype):
    return torch.randint(least, end, shape, dtype=dtype)


@case()
def powers_of_columns_and_rows(size):
    f = lambda a, b: (a**b, b**a)
    return f, (numbers(-3, 4, 40, 1, dtype=torch.int16), numbers(0, 5, 1, 9, dtype=torch.int16)), {}


@case()
def numbers_that_no_byte_holds(size):
    return lambda a: (a + (-3), a * -1, torch.where(a > 9, a, 255)), (numbers(0, 256, 25, dtype=torch.uint8),), {}


@case()
def numbers_that_no_signed_byte_holds(size):
    return lambda a: (a + 127, a * -128), (numbers(-128, 128, 25, dtype=torch.int8),), {}
"""


@pytest.mark.parametrize("backend", ["assay-sm90", "assay-triton"])
def test_integers(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "mine.py"
    file.write_text(CASES)
    arguments = ["run", str(file), "--backend", backend, "--mode", "infer", "--isolate"]
    environment = {"COLUMNS": "400", "TRITON_INTERPRET": "1" if backend == "assay-triton" else "0"}
    done = CliRunner(env=environment).invoke(commands, arguments)
    assert done.exit_code == 0 and "3 same" in done.output, done.output
