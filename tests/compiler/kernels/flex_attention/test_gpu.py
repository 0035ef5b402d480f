"""Attention by Triton programs: interpreted beside the kernel in C++, compiled for a GPU, and run on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from assay.compiler.ir.graph.scalar_functions import Form, derivative_of, recorded, text_of
from assay.compiler.kernels.flex_attention.gpu import AttentionPrograms, BackwardPrograms
from assay.compiler.kernels.flex_attention.gpu_programs import TILINGS, Programs, Variant
from assay.compiler.ops.calls import score_kernels
from assay.compiler.ops.calls.score_kernels import Functions, change_of, collection_of
from assay.compiler.toolchain.gpu.triton_build import Wanted, build
from assay.compiler.toolchain.gpu.triton_launch import path_of
from assay.compiler.toolchain.gpu.written_programs import Written, module_text
from tests.compiler.kernels.flex_attention import test_flex_attention as on_cpu
from tests.compiler.kernels.flex_attention.test_flex_attention import PROGRAMS, Program, causal, learned

ROOT = Path(__file__).parents[4]
MOST_SHARED = 232448
"""Bytes of shared memory that an instance may have on a GPU of capability 9.0."""
HALF_ERROR, FLOAT_ERROR = 2e-3, 2e-6


NIGHTLY = ("causal", "hidden rows, odd depths", "learned")


@pytest.mark.parametrize(
    "name", ["one row, one key", *(pytest.param(each, marks=pytest.mark.nightly) for each in NIGHTLY)]
)
def test_programs_give_what_the_kernel_in_cpp_gives(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.compiler.kernels.flex_attention.interpreted", str(tmp_path), name]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    bound = HALF_ERROR if name == "causal" else FLOAT_ERROR
    assert all(is_same and error <= bound for is_same, error in json.loads(line)[1]), line


def bent(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    return torch.tanh(s) + (k - q) * 0.01 + table[h, q - k + 70]


@pytest.mark.nightly
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("multiple", [128, 1])
def test_programs_compile_for_a_gpu_and_fit(name: str, multiple: int, tmp_path: Path) -> None:
    kinds = ((torch.float32, 2),)
    texts = text_of(recorded(bent, kinds)), text_of(recorded(causal, (), Form.mask))
    derivative = text_of(recorded(derivative_of(bent, (0,)), kinds, Form.derivative))
    functions = Functions(*texts, kinds, (), derivative, (0,))
    three = change_of(functions), collection_of(functions), score_kernels.derivative_of(functions)
    built = []

    def load(programs: list[Written], _: torch.device) -> list[Any]:
        for each in programs:
            path = path_of(module_text(each.text), str(tmp_path))
            wanted = Wanted(
                path, each.function, each.kinds, each.is_aligned, (each.warps,), 90, each.has_checks, each.stages,
                each.multiples,
            )  # fmt: skip
            built.append(build(wanted))
        return [None for _ in programs]

    is_forward = name == "attend"
    files = ("attend.triton",) if is_forward else ("attend.triton", "derive.triton")
    made = (three[0],) if is_forward else three
    variant = Variant(False, True, multiple > 1, True, multiple, multiple, True, True, "ieee")
    Programs(files, made, torch.bfloat16, (64, 64), load).of((name,), variant, torch.device("cpu"))  # type: ignore[arg-type]
    assert [each.name for each in built] == [name] and built[0].shared <= MOST_SHARED


# ---- on a GPU


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel has run."""
    made = Counter[str]()
    for kind in (AttentionPrograms, BackwardPrograms):

        def call(self: object, *args: Any, original: Any = kind.__call__, name: str = kind.__name__) -> Any:
            made[name] += 1
            return original(self, *args)

        monkeypatch.setattr(kind, "__call__", call)
    for name in ("SLOPES", "DOCUMENTS", "TABLE"):
        monkeypatch.setattr(on_cpu, name, getattr(on_cpu, name).cuda())
    torch._dynamo.reset()
    return made


def attention(program: Program, score: Callable[..., Tensor] | None = None) -> Callable[..., Any]:
    _, _, several, rows, keys, _ = program.sizes
    mask = program.mask and create_block_mask(
        program.mask, None, None, rows, keys, device="cuda", BLOCK_SIZE=program.block
    )

    def run(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> Any:
        changed = (lambda *place: score(*place, *given)) if score else program.score
        return flex_attention(q, k, v, changed, mask, enable_gqa=several > 1, return_lse=True)

    return run


def derived(function: Callable[..., Any], values: list[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    given = [each.detach().clone().requires_grad_() for each in values]
    results = function(*given)
    torch.autograd.backward(results, [t.to(each.dtype) for t, each in zip(tangents, results, strict=True)])
    return [*(each.detach() for each in results), *(each.grad for each in given if each.grad is not None)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_results_and_gradients_are_as_near_to_float64_as_torchs_formula(
    program: Program, dtype: torch.dtype, gpu: Counter[str]
) -> None:
    heads = [each.cuda() for each in program.heads(dtype)]
    compiled = torch.compile(attention(program), backend="assay", options={"fallback": "error"})
    logs = program.formula(*heads)[1]
    tangents = [torch.randn_like(program.formula(*heads)[0]), torch.where(logs.isfinite(), torch.randn_like(logs), 0)]
    found, eager = (derived(each, heads, tangents) for each in (compiled, program.formula))
    on_cpu.check_near(found, eager, derived(program.formula, [each.double() for each in heads], tangents))
    assert gpu == {"AttentionPrograms": 1, "BackwardPrograms": 1}


@pytest.mark.gpu
def test_gradients_of_what_functions_read_are_right_on_a_gpu(gpu: Counter[str]) -> None:
    program = Program("learned", mask=causal)
    values = [each.cuda() for each in (*program.heads(), torch.randn(6), torch.randn(6, 140), torch.tensor(0.7))]

    def formula(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        return Program("learned", score=lambda *place: learned(*place, *given), mask=causal).formula(q, k, v)

    tangents = [torch.randn_like(each) for each in formula(*values)]
    found = derived(torch.compile(attention(program, learned), backend="assay"), values, tangents)
    exact = derived(formula, [each.double() for each in values], tangents)
    on_cpu.check_near(found, derived(formula, values, tangents), exact)
    assert gpu == {"AttentionPrograms": 1, "BackwardPrograms": 1}
