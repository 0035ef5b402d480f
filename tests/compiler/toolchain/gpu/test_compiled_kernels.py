"""Kernels on a GPU made again from what the cache keeps, held to a stand-in for the driver that notes its launches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.toolchain import load
from assay.compiler.toolchain.gpu import compiled_kernels
from assay.compiler.toolchain.launch import Loaded
from tests import kernel_ir as ir
from tests.kernel_ir import call, const, i, j, loops, reduce, store
from tests.kernel_ir import load as read
from tests.kernel_ir import options as options_of

pytest.importorskip("triton")
FUNCTIONS: dict[bytes, int] = {}
Launch = tuple[int, ...]


def kernels() -> list[Kernel]:
    """A sum of long rows, and a kernel that has memory of its own between two launches."""
    x = torch.ones(4, 70_000)
    total = ir.make_run(
        loops(i=4), [store("y", i, reduce("sum", read("x", i * 70_000 + j), j=70_000))], {"x": x}, {"y": x.sum(1)}
    )
    twice = ir.make_run(
        loops(i=4096), [store("y", i, call("mul", read("x", i), const(2)))], {"x": x[0, :4096]}, {"y": x}
    )
    found = (replace(total.kernel, name="total"), replace(twice.kernel, name="twice"))
    return [replace(kernel, device=torch.device("cuda", 0)) for kernel in found]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launch]]:
    from assay.compiler.toolchain.gpu import triton_launch

    found: list[Launch] = []
    loaded: list[tuple[bytes, str]] = []

    def load_cuda(code: bytes, name: str, shared: int, device: int) -> int:
        loaded.append((code, name))
        return FUNCTIONS.setdefault(code, len(FUNCTIONS) + 100)

    for module in (triton_launch, compiled_kernels):
        monkeypatch.setattr(module, "launch_cuda", lambda: lambda *values: found.append(values))
        monkeypatch.setattr(module, "load_cuda", load_cuda)
    monkeypatch.setattr(compiled_kernels, "machine_of", lambda device: "this one")
    monkeypatch.setattr(triton_launch, "machine_of", lambda device: "this one")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    workspace = SimpleNamespace(data_ptr=lambda: 1 << 20)
    monkeypatch.setattr(torch, "empty", lambda *size, **more: workspace)
    yield found
    assert all(code.startswith(b"\x7fELF") for code, _ in loaded)


def again(first: Loaded, folder: Path) -> Loaded | None:
    return load.load_again(pickle.loads(pickle.dumps(first.places)), options_of(str(folder)))


def launched_by(kernel: str, made: Loaded, launches: list[Launch], *values: int) -> list[Launch]:
    launches.clear()
    made[kernel](*values)
    return list(launches)


def test_what_was_kept_launches_what_was_compiled(launches: list[Launch], tmp_path: Path) -> None:
    first = load.load_kernels(kernels(), options_of(str(tmp_path)))
    assert len(first.places["total"].codes) == 2, "a long row is summed in two launches"
    second = again(first, tmp_path)
    assert second is not None and second.keys() == first.keys() == {"total", "twice"}
    for name in first:
        expected = launched_by(name, first, launches, 4096, 8192)
        assert launched_by(name, second, launches, 4096, 8192) == expected
        assert len(expected) == len(first.places[name].codes) and all(values[5] == 77 for values in expected)
    assert second.places == first.places, "what is kept of it once more is the same"


def test_a_call_for_other_code_is_compiled_when_it_comes(launches: list[Launch], tmp_path: Path) -> None:
    """An address off 16 bytes needs other code, which Triton compiles from the kernel's text."""
    first = load.load_kernels(kernels(), options_of(str(tmp_path)))
    second = again(first, tmp_path)
    assert second is not None
    aligned = launched_by("twice", first, launches, 4096, 8192)
    expected = launched_by("twice", first, launches, 4096, 8196)
    assert expected[0][0] != aligned[0][0], "another function"
    assert launched_by("twice", second, launches, 4096, 8196) == expected


@pytest.mark.parametrize("lost", ["code", "device", "machine"])
def test_what_is_not_there_is_compiled_afresh(
    launches: list[Launch], tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load.load_kernels(kernels(), options_of(str(tmp_path)))
    if lost == "code":
        next(tmp_path.glob("*.cubin")).unlink()
    elif lost == "device":
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    else:
        monkeypatch.setattr(compiled_kernels, "machine_of", lambda device: "another one")
    assert again(first, tmp_path) is None


def test_a_damaged_code_is_never_loaded(launches: list[Launch], tmp_path: Path) -> None:
    first = load.load_kernels(kernels(), options_of(str(tmp_path)))
    path = next(tmp_path.glob("*.cubin"))
    path.write_bytes(path.read_bytes()[:-40] + b"x" * 40)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert again(first, tmp_path) is None
