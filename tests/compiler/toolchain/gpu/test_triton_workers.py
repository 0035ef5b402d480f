"""Workers that compile Triton programs: what they answer, and what becomes of a call where one is lost."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.compiler import journal
from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.toolchain.gpu import triton_workers
from assay.compiler.toolchain.gpu.triton_build import Built, NotBuilt, Wanted, _first_that_compiles, build, diagnosed
from assay.compiler.toolchain.gpu.triton_launch import path_of, text_of, wanted_of
from assay.compiler.toolchain.gpu.triton_workers import Workers, receive, send
from tests.compiler.codegen.cpp.test_cpp_kernels import RUNS
from tests.sources import ROOT

pytest.importorskip("triton")
NAMES = ("softmax", "gelu, float16", "padded", "any over (0, 1, 2)", "mixed dtypes", "symbolic columns")


def wanted(name: str, folder: Path) -> list[Wanted]:
    kernel = RUNS[name].kernel
    programs = emit_programs(kernel)
    path = path_of(text_of(programs), str(folder))
    return [wanted_of(kernel, program, path, False, True) for program in programs]


@pytest.fixture
def several(tmp_path: Path) -> list[Wanted]:
    return [each for name in NAMES for each in wanted(name, tmp_path)]


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    idle = [made.idle.get_nowait() for _ in range(made.idle.qsize())]
    for worker in idle:
        made.idle.put(worker)
    made.close()
    assert [worker.returncode for worker in idle] == [0] * len(idle)


def test_workers_start_without_torch() -> None:
    """It takes seconds to import and to end, in each of them."""
    code = "import sys, assay.compiler.toolchain.gpu.triton_workers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_workers_answer_what_this_process_would_build(several: list[Wanted], workers: Workers) -> None:
    found = workers.build_all(several)
    assert workers.build_all([]) == [] and not workers.idle.empty() and found == [build(each) for each in several]
    assert all(isinstance(each, Built) and each.data.startswith(b"\x7fELF") for each in found)


def test_workers_build_equal_programs_once(
    several: list[Wanted], workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Wanted]()
    monkeypatch.setattr(workers, "_asked", lambda each: asked.append(each) or build(each))
    found = workers.build_all([*several, *several])
    assert (
        sorted(map(hash, asked)) == sorted(map(hash, set(several))) and found[: len(several)] == found[len(several) :]
    )


def test_a_few_programs_wait_for_no_worker_to_start(several: list[Wanted], workers: Workers) -> None:
    workers.build_all(several[:2])
    assert workers.idle.empty()


def test_workers_say_what_triton_says(several: list[Wanted], workers: Workers) -> None:
    bad = [Wanted(each.path, each.function, each.kinds, True, (), 90, False) for each in several]
    assert all(isinstance(each, NotBuilt) for each in workers.build_all(bad))


def test_where_no_worker_starts_this_process_builds(several: list[Wanted]) -> None:
    lost = Workers(2, (sys.executable, "-c", "raise SystemExit(3)"))
    assert lost.build_all(several) == [build(each) for each in several] and not lost.are_there
    assert Workers(2, ("/nonexistent",)).build_all(several) == [build(each) for each in several]


def test_a_worker_that_ends_on_a_program_is_told_of(several: list[Wanted]) -> None:
    worker = "from assay.compiler.toolchain.gpu.triton_workers import *"
    ends = f"{worker}; send(sys.stdout.buffer, 1); receive(sys.stdin.buffer); exit(7)"
    answers = Workers(2, (sys.executable, "-c", ends)).build_all(several)
    assert {str(answer) for answer in answers} == {"the process that compiled it ended with 7"}


def test_workers_that_ended_are_replaced(several: list[Wanted], workers: Workers) -> None:
    workers.build_all(several)
    for _ in range(workers.idle.qsize()):
        worker = workers.idle.get_nowait()
        worker.kill()
        worker.wait()
        workers.idle.put(worker)
    assert workers.build_all(several) == [build(each) for each in several]


class _Trickle(io.BytesIO):
    """A pipe that gives a byte at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(1, size or 0))


def test_receive_waits_for_the_whole_of_a_message() -> None:
    stream = io.BytesIO()
    send(stream, ["*fp32"] * 1000)
    assert receive(_Trickle(stream.getvalue())) == ["*fp32"] * 1000
    with pytest.raises(EOFError):
        receive(_Trickle(stream.getvalue()[:-1]))


def test_a_worker_ends_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = triton_workers.SOURCE.replace("main()", "main(0.2)")
    monkeypatch.setattr(triton_workers, "SOURCE", source)
    worker = Workers(2)._started()
    assert worker is not None
    began = time.monotonic()
    assert worker.wait(20) == 0 and time.monotonic() - began < 10


ENDS = """
import sys
from pathlib import Path
from assay.compiler.toolchain.gpu.triton_workers import workers
from tests.compiler.toolchain.gpu.test_triton_workers import NAMES, wanted
workers().count = 2
workers().build_all([each for name in NAMES for each in wanted(name, Path(sys.argv[1]))])
assert workers().idle.qsize() == 2
"""


def test_workers_end_with_their_process_and_leave_nothing_open(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", ENDS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "ResourceWarning" not in done.stderr, done.stderr[-3000:]


DEAF = """
import sys, time
from assay.compiler.toolchain.gpu.triton_workers import send
send(sys.stdout.buffer, None)
time.sleep(60)
"""


def test_a_worker_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_workers, "END_S", 0.1)
    made = Workers(2, (sys.executable, "-c", DEAF))
    worker = made._started()
    assert worker is not None
    made.idle.put(worker)
    made.close()
    assert worker.returncode == -signal.SIGKILL


MLIR = b"""/tmp/k.py:38:16: error: operand #0 does not dominate this use
    v18 = v15 * v17
module {
  tt.func public @kernel_2(%arg0: !tt.ptr<f32>) {
"""


def test_what_mlir_prints_on_a_failure_is_one_line_of_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"^operand #0 does not dominate this use$"), diagnosed():
        os.write(2, MLIR)
        raise RuntimeError("PassManager::run failed")
    with diagnosed():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"


def test_a_number_of_warps_that_fails_is_told_beside_the_code_of_another() -> None:
    def compiled(warps: int) -> str:
        if warps < 4:
            raise RuntimeError(f"no {warps}")
        return f"code of {warps}"

    assert _first_that_compiles(compiled, (1, 2, 4, 8)) == (4, "code of 4", "with 1 warps: no 1")
    assert _first_that_compiles(compiled, (8, 1)) == (8, "code of 8", "")
    with pytest.raises(NotBuilt, match="with 1 warps: no 1"):
        _first_that_compiles(compiled, (1, 2))


def test_a_failed_build_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    journal.reset()
    for _ in range(2):
        journal.count_failed_build("kernel_2", "with 1 warps: operand #0 of this test")
    assert journal.totals()["failed_builds"] == 2
    assert [record.getMessage() for record in caplog.records] == [
        "assay: Triton fails on kernel_2 with 1 warps: operand #0 of this test; it is built with others"
    ]
