"""The launch by CUDA's driver, held to a driver of the test's own, which writes down what it is asked for."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.compiler.toolchain.build import find_compiler
from assay.compiler.toolchain.gpu.cuda_launch import MOST_VALUES, launch_cuda, load_cuda

STAND_IN = """
extern "C" {
long long seen[16], contexts = 0, refused = 0;
int cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** given, void** extra) {
  if (refused) return (int)refused;
  if (!contexts) return 201;
  long long found[] = {(long long)f, x, y, z, bx, by, bz, shared, (long long)stream, *(long long*)given[0],
                       *(int*)given[1], *(long long*)given[2], *(long long*)given[3], extra != 0};
  for (int i = 0; i < 14; i++) seen[i] = found[i];
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = (void*)(long long)(device + 7); return 0; }
int cuCtxSetCurrent(void* context) { contexts = (long long)context; return 0; }
const char* names[2] = {0, 0};
long long attribute[3], context_now = 5, initialised = 0;
int cuInit(unsigned) { initialised++; return 0; }
int cuCtxPushCurrent_v2(void* context) { seen[14] = context_now; context_now = (long long)context; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = (void*)context_now; context_now = seen[14]; return 0; }
int cuModuleLoadData(void** module, const char* code) {
  if (context_now < 7 || refused) return 200;
  names[0] = code;
  *module = (void*)11;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = (void*)((long long)module + (name[0] == 'k' ? 1 : 2));
  return 0;
}
int cuFuncSetAttribute(void* function, int which, int value) {
  attribute[0] = (long long)function, attribute[1] = which, attribute[2] = value;
  return 0;
}
int cuGetErrorString(int, const char** name) { *name = "out of something"; return 0; }
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(STAND_IN)
    compiler = find_compiler(None)
    assert compiler is not None
    library = folder / "libdriver.so"
    command = [compiler.path, "-shared", "-fPIC", "-o", str(library), str(folder / "driver.cpp")]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def launch(driver: Path) -> Callable[..., None]:
    found = launch_cuda(str(driver))
    assert found is not None
    return found


def number(driver: Path, name: str) -> ctypes.c_longlong:
    return ctypes.c_longlong.in_dll(ctypes.CDLL(str(driver)), name)


def test_launch_gives_the_driver_what_it_is_given(driver: Path, launch: Callable[..., None]) -> None:
    """Among it addresses beyond 32 bits, a size of 32 bits, which lies first in its eight bytes, and two zeros more."""
    launch(1 << 40, 3, 128, 4096, 1, 1 << 41, (1 << 45) + 16, -5)
    seen = (ctypes.c_longlong * 16).in_dll(ctypes.CDLL(str(driver)), "seen")
    assert list(seen)[:14] == [1 << 40, 3, 1, 1, 128, 1, 1, 4096, 1 << 41, (1 << 45) + 16, -5, 0, 0, 0]
    assert number(driver, "contexts").value == 1 + 7, "the device's own, for a thread that had none"


def test_launch_raises_what_the_driver_says(driver: Path, launch: Callable[..., None]) -> None:
    refused = number(driver, "refused")
    refused.value = 2
    try:
        with pytest.raises(RuntimeError, match=r"CUDA error in a launch: out of something \(2\)"):
            launch(1, 1, 1, 0, 0, 0)
    finally:
        refused.value = 0


@pytest.mark.parametrize("count", [5, 6 + MOST_VALUES + 1])
def test_launch_takes_so_many_integers(launch: Callable[..., None], count: int) -> None:
    with pytest.raises(TypeError, match=f"{count} given"):
        launch(*range(count))


def test_launch_takes_integers_alone(launch: Callable[..., None]) -> None:
    with pytest.raises(TypeError):
        launch(1, 1, 1, 0, 0, 0, torch.ones(1))


def test_launch_raises_where_there_is_no_driver() -> None:
    launch = launch_cuda("libassay_no_such_driver.so")
    assert launch is not None
    with pytest.raises(RuntimeError, match="libassay_no_such_driver"):
        launch(1, 1, 1, 0, 0, 0)


def test_code_is_loaded_in_the_context_of_its_device(driver: Path) -> None:
    """And the thread has afterwards the one that it had."""
    assert load_cuda(b"code", "kernel", 100, 1, str(driver)) == 12
    assert number(driver, "context_now").value == 5 and number(driver, "initialised").value
    assert (ctypes.c_longlong * 3).in_dll(ctypes.CDLL(str(driver)), "attribute")[0] == 0, "shared memory as it may be"
    assert load_cuda(b"code", "kernel", 64 << 10, 1, str(driver)) == 12
    assert list((ctypes.c_longlong * 3).in_dll(ctypes.CDLL(str(driver)), "attribute")) == [12, 8, 64 << 10]


def test_code_that_the_driver_refuses_is_an_error(driver: Path) -> None:
    refused = number(driver, "refused")
    refused.value = 1
    try:
        with pytest.raises(RuntimeError, match=r"CUDA error in loading a kernel: out of something \(200\)"):
            load_cuda(b"code", "kernel", 0, 0, str(driver))
    finally:
        refused.value = 0
    assert number(driver, "context_now").value == 5
    with pytest.raises(RuntimeError, match="libassay_no_such_driver"):
        load_cuda(b"code", "kernel", 0, 0, "libassay_no_such_driver.so")
