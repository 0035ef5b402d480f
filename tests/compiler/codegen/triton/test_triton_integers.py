"""Kernels on integers compile for a GPU, and give eager's numbers: shapes that meet in a loop, numbers out of range."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.compiler.options import UNOPTIMIZED
from assay.compiler.toolchain.gpu import triton_build
from assay.compiler.toolchain.gpu.triton_build import Wanted
from assay.harness.cli.commands import commands
from tests.sources import ROOT

CASES = """
import torch
from assay.harness.case import case


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


def divided(a, b):
    floor, trunc = (torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc"))
    return torch.fmod(a, b), torch.remainder(a, b), floor, trunc, torch.fmod(a, 7), a // 3


def divisors(dtype):
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    b = numbers(least, most, 500, dtype=dtype)
    return b.where(b != 0, 1)


@case()
def shorts_that_are_divided(size):
    return divided, (numbers(-32768, 32768, 500, dtype=torch.int16), divisors(torch.int16)), {}


@case()
def bytes_that_are_divided(size):
    return divided, (numbers(0, 256, 500, dtype=torch.uint8), divisors(torch.uint8)), {}


@case()
def signed_bytes_that_are_divided(size):
    return divided, (numbers(-128, 128, 500, dtype=torch.int8), divisors(torch.int8)), {}
"""


PLACED = """
import torch
from assay.harness.case import case


@case()
def rows_at_places_that_strided_data_gives(size):
    index, values = torch.randint(0, 10, (10, 2, 2))[..., 1], torch.randn(10, 2, 2)[..., 1].requires_grad_()
    x = torch.randn(10, 5, 2)[..., 1].requires_grad_()
    return lambda x, i, v: x.scatter_reduce(0, i, v, "mean", include_self=False), (x, index, values), {}
"""


def test_rows_at_places_that_data_gives_for_each_element(tmp_path: Path) -> None:
    """Where such a row begins is not known before its elements are: it is none that is read 16 bytes at a time."""
    pytest.importorskip("triton")
    file = tmp_path / "mine.py"
    file.write_text(PLACED)
    arguments = ["run", str(file), "--backend", "assay-sm90,dynamic", "--isolate"]
    done = CliRunner(env={"COLUMNS": "400", "TRITON_INTERPRET": "0"}).invoke(commands, arguments)
    assert (
        done.exit_code == 0 and "2 same" in done.output and " 0 failed" in done.output and "failed, " not in done.output
    ), done.output


@pytest.mark.parametrize("backend", ["assay-sm90", "assay-triton"])
def test_integers(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "mine.py"
    file.write_text(CASES)
    arguments = ["run", str(file), "--backend", backend, "--mode", "infer", "--isolate"]
    environment = {"COLUMNS": "400", "TRITON_INTERPRET": "1" if backend == "assay-triton" else "0"}
    done = CliRunner(env=environment).invoke(commands, arguments)
    assert done.exit_code == 0 and "6 same" in done.output, done.output


BESIDE_A_CALL = """
import triton
import triton.language as tl


@triton.jit
def beside(c, a, b, o):
    n = tl.arange(0, 256)
    v, x, y = tl.load(c + 2 * n), tl.load(a + n), tl.load(b + n)
    tl.store(o + n, x / tl.where((v >= 5) & (v < 9), y, 3))
"""


def beside_a_call(kind: str, folder: Path) -> Wanted:
    path = folder / f"k{kind[1:]}.py"
    path.write_text(BESIDE_A_CALL)
    return Wanted(str(path), "beside", ("*i16", kind, kind, kind), False, (1,), 90, False)


def test_constants_are_added_to_shorts_one_by_one(tmp_path: Path) -> None:
    """NVIDIA's assembler adds another one to one of two; with two warps a thread has few elements."""
    pytest.importorskip("triton")
    found = triton_build.triton_code(beside_a_call("*fp64", tmp_path))
    assert found.metadata.num_warps == 2 and triton_build.is_assembled_right(found.asm["ptx"])


def test_shorts_that_are_added_two_at_once_for_all_warps_are_left_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(triton_build, "MOST_WARPS", 1)
    monkeypatch.delenv(UNOPTIMIZED, raising=False)
    found = triton_build.triton_code(beside_a_call("*fp64", tmp_path))
    assert found.metadata.num_warps == 1 and triton_build.is_assembled_right(found.asm["ptx"])
    assert UNOPTIMIZED not in os.environ
    monkeypatch.setattr(triton_build, "is_assembled_right", lambda text: False)
    with pytest.raises(triton_build.NotBuilt, match="at once"):
        triton_build.triton_code(beside_a_call("*fp64", tmp_path))


@pytest.mark.parametrize(("operand", "is_right"), [("%r1", False), ("-65537", False), ("%r4", True)])
def test_which_text_is_assembled_right(operand: str, is_right: bool) -> None:
    text = f"mov.b32 \t%r1, -1;\nadd.s16x2 \t%r3, %r2, {operand};\n"
    assert triton_build.is_assembled_right(text) is is_right and triton_build.is_assembled_right(text[:20])


DIVIDED = """
import torch
from assay.compiler.toolchain.gpu import triton_build
from assay.harness.backends.registry import resolve

whole = triton_build.triton_code
made = []
triton_build.triton_code = lambda wanted: made.append(whole(wanted)) or made[-1]
x = torch.randn(2, 3, 5, 5)
windows = resolve("assay-sm90").wrap(lambda x: torch.nn.functional.unfold(x, 2, padding=1))
torch.testing.assert_close(windows(x), torch.nn.functional.unfold(x, 2, padding=1))
x, y = torch.randint(-99, 99, (250,), dtype=torch.int16), torch.randint(1, 99, (250,), dtype=torch.int16)
torch.testing.assert_close(resolve("assay-sm90").wrap(torch.fmod)(x, y), torch.fmod(x, y))
assert any("rem.s32" in found.asm["ptx"] for found in made) and "rem.s16" not in made[-1].asm["ptx"]
for found in made:
    print("in 16 bits" if "mul.hi.u16" in found.asm["ptx"] else "in 32" if "mul.hi" in found.asm["ptx"] else "not")
"""


def test_indices_and_shorts_are_not_divided_in_16_bits(tmp_path: Path) -> None:
    """NVIDIA's assembler makes something else of such products: windows of 5 x 5 had zeros at their ends."""
    pytest.importorskip("triton")
    root = str(ROOT)
    environment = os.environ | {"TRITON_INTERPRET": "0", "ASSAY_CACHE": str(tmp_path), "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", DIVIDED], capture_output=True, text=True, env=environment, cwd=root)
    assert set(done.stdout.split("\n")) == {"in 32", "not", ""}, done.stdout + done.stderr[-2000:]
