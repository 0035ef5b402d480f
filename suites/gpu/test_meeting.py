"""Programs whose instances meet, on a GPU: what they compute, beside each other and beside other work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compiler.codegen.tile import Change
from compiler.codegen.triton import emit_programs
from compiler.runtime.triton_launch import Variants
from tests.kernel_ir import Run
from tests.test_cpp_kernels import BOUNDS
from tests.two_stages import norm_of_columns, peaks_of_channels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GENERATOR = torch.Generator().manual_seed(5)
MET = Change(is_met=True)
PROGRAMS: dict[str, Callable[[], Run]] = {
    "columns": lambda: norm_of_columns(200_704, 256, GENERATOR),
    "few columns": lambda: norm_of_columns(34_000, 6, GENERATOR),
    "odd columns": lambda: norm_of_columns(100_003, 77, GENERATOR),
    "channels": lambda: peaks_of_channels(64, 128, 3136, GENERATOR),
    "one channel": lambda: peaks_of_channels(1, 1, 1 << 22, GENERATOR),
}
TIMES = 30


def launcher(run: Run, folder: Path) -> Callable[..., None]:
    kernel = replace(run.kernel, name="met", device=torch.device("cuda", 0))
    assert len(emit_programs(kernel, change=MET)) == 1, "both stages are one program"
    made = Variants(kernel, str(folder))
    made.settle(MET)
    return made.first().launch


def on_device(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in run.tensors.items()}


def check(run: Run, tensors: dict[str, torch.Tensor]) -> None:
    for name, expected in run.expected.items():
        bound = BOUNDS[expected.dtype] * expected.double().abs().max().item()
        torch.testing.assert_close(tensors[name].cpu(), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_instances_that_meet_compute(name: str, tmp_path: Path) -> None:
    """The same bits each time: the last to come joins all parts in their order."""
    run = PROGRAMS[name]()
    launch, tensors = launcher(run, tmp_path), on_device(run)
    first: dict[str, torch.Tensor] = {}
    for _ in range(TIMES):
        for output in run.expected:
            tensors[output].fill_(77)
        launch(*(tensor.data_ptr() for tensor in tensors.values()))
        first = first or {output: tensors[output].clone() for output in run.expected}
        assert all(torch.equal(tensors[output], first[output]) for output in run.expected)
    check(run, tensors)


def test_instances_meet_beside_others(tmp_path: Path) -> None:
    """On two streams at a time, while a third multiplies."""
    run = PROGRAMS["columns"]()
    launch, sets = launcher(run, tmp_path), [on_device(run), on_device(run)]
    streams, busy = [torch.cuda.Stream(), torch.cuda.Stream()], torch.cuda.Stream()
    square = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    for _ in range(TIMES):
        with torch.cuda.stream(busy):
            torch.mm(square, square)
        for stream, tensors in zip(streams, sets, strict=True):
            with torch.cuda.stream(stream):
                launch(*(tensor.data_ptr() for tensor in tensors.values()))
    torch.cuda.synchronize()
    for tensors in sets:
        check(run, tensors)
