"""The hand-written kernels of the C++ tests, on a GPU: what they hold there, they hold here."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.options import Options
from assay.compiler.toolchain.gpu.triton_launch import load_triton
from tests.compiler.codegen.cpp.test_cpp_kernels import BOUNDS, RUNS
from tests.compiler.codegen.triton.test_triton_programs import OWN

KERNELS = {**RUNS, **OWN}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, torch.Tensor]]:
    device = torch.device("cuda", 0)
    kernels = {
        name: replace(run.kernel, device=device, name=f"own_{n}") for n, (name, run) in enumerate(KERNELS.items())
    }
    functions = load_triton(list(kernels.values()), Options.of(None, None))
    found = {}
    for name, run in KERNELS.items():
        tensors = {buffer: tensor.to(device) for buffer, tensor in run.tensors.items()}
        functions[kernels[name].name](*(tensor.data_ptr() for tensor in tensors.values()), *run.symbols)
        found[name] = {buffer: tensors[buffer].cpu() for buffer in run.expected}
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_emit_programs_equal_eager(name: str, results: dict[str, dict[str, torch.Tensor]]) -> None:
    for buffer, expected in KERNELS[name].expected.items():
        got = results[name][buffer]
        bound = BOUNDS.get(got.dtype, 0.0) * (4 if "prod" in name else 1)
        largest = expected.double().abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
        torch.testing.assert_close(
            got, expected, rtol=0, atol=bound * largest, equal_nan=True,
            msg=lambda m: f"{m}\n{[program.text for program in emit_programs(KERNELS[name].kernel)]}",
        )  # fmt: skip
