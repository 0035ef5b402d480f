"""The build, the cache and the launch of kernels, when things go well and when they do not."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.compiler.errors import BuildError
from assay.compiler.ir.loops.kernel import Expr, Kernel
from assay.compiler.options import Options
from assay.compiler.toolchain import build, cache, launch
from assay.compiler.toolchain.load import load_kernels
from tests import kernel_ir as ir


def doubling(factor: float = 2.0) -> Kernel:
    """y = factor * x over eight elements; the factor makes its source, and so its cache entry, its own."""
    return pointwise("doubling", ir.call("mul", ir.load("x", ir.i), ir.const(factor)))


def pointwise(name: str, value: Expr) -> Kernel:
    """y = value over eight elements."""
    x = torch.zeros(8)
    return Kernel(name, ir.loops(i=8), (ir.store("y", ir.i, value),), (ir.buffer("x", x), ir.buffer("y", x)), (), ())


def result_of(kernel: Kernel, options: Options) -> torch.Tensor:
    """What the kernel makes in a process that has loaded none yet."""
    launch._known.clear()
    x, y = torch.arange(8.0), torch.full((8,), 77.0)
    load_kernels([kernel], options)[kernel.name](x.data_ptr(), y.data_ptr())
    return y


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The compiler's command lines, as they run."""
    seen: list[list[str]] = []
    original = build._run
    monkeypatch.setattr(build, "_run", lambda command: (seen.append(command), original(command)))
    yield seen


@pytest.fixture(autouse=True)
def fresh_warnings() -> None:
    cache._warn_once.cache_clear()


def test_cache_second_load_compiles_nothing(tmp_path: Path, commands: list[list[str]]) -> None:
    first = result_of(doubling(), ir.options(tmp_path))
    assert len(commands) == 1
    second = result_of(doubling(), ir.options(tmp_path))
    assert len(commands) == 1
    assert torch.equal(first, torch.arange(8.0) * 2) and torch.equal(second, first)


def test_launch_builds_a_kernel_once_a_process_whatever_its_name(tmp_path: Path, commands: list[list[str]]) -> None:
    options = ir.options(tmp_path)
    first, other = replace(doubling(), name="first"), replace(doubling(3.0), name="other")
    loaded = load_kernels([first], options)
    again = load_kernels([replace(first, name="again", origins=("mul_1",)), other], options)
    assert len(commands) == 2 and again["again"] is loaded["first"]
    assert isinstance(loaded, launch.Loaded) and isinstance(again, launch.Loaded)
    assert again.places["again"] == loaded.places["first"] != again.places["other"]
    kept = launch.load_again(again.places, options)
    assert kept is not None and kept.keys() == again.keys() and len(commands) == 2
    x, y = torch.arange(8.0), torch.empty(8)
    kept["other"](x.data_ptr(), y.data_ptr())
    assert torch.equal(y, x * 3)


def test_launch_tells_kernels_apart_whose_names_are_in_their_text(tmp_path: Path) -> None:
    kernels = [pointwise(name, ir.call(name, ir.load("x", ir.i))) for name in ("sin", "cos")]
    loaded = load_kernels(kernels, ir.options(tmp_path))
    x, y = torch.arange(8.0), torch.empty(8)
    for name, expected in (("sin", x.sin()), ("cos", x.cos())):
        loaded[name](x.data_ptr(), y.data_ptr())
        torch.testing.assert_close(y, expected)


def test_cache_key_holds_source_and_flags(
    tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    result_of(doubling(2.0), ir.options(tmp_path))
    assert torch.equal(result_of(doubling(3.0), ir.options(tmp_path)), torch.arange(8.0) * 3)
    assert len(commands) == 2
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DASSAY_OTHER"))
    result_of(doubling(2.0), ir.options(tmp_path))
    assert len(commands) == 3
    monkeypatch.setattr(cache, "machine_features", lambda: "another machine")
    result_of(doubling(2.0), ir.options(tmp_path))
    assert len(commands) == 4


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"x"]
)
def test_cache_damaged_entry_is_compiled_again(tmp_path: Path, commands: list[list[str]], damage: object) -> None:
    kernel = doubling(5.0)
    subprocess.run(
        [sys.executable, "-c", FILL.format(cache=str(tmp_path))], check=True
    )  # so that it is not mapped here
    (entry,) = tmp_path.glob("*.so")
    entry.write_bytes(damage(entry.read_bytes()))
    with pytest.warns(RuntimeWarning, match="is damaged; it is compiled again"):
        assert torch.equal(result_of(kernel, ir.options(tmp_path)), torch.arange(8.0) * 5)
    assert len(commands) == 1
    assert cache._is_whole(entry)


FILL = """
from tests.compiler.toolchain.test_build_cache import doubling, ir, load_kernels
load_kernels([doubling(5.0)], ir.options({cache!r}))
"""


@pytest.mark.parametrize("kind", ["a file in its place", "below a file", "not writable"])
def test_cache_unusable_directory_warns_once_and_computes(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "cache"
    if kind == "not writable":
        place = Path("/proc/assay-cache")  # where nobody, root included, can make a file
    else:
        place.write_text("not a directory")
        place = place / "deeper" if kind == "below a file" else place
    with pytest.warns(RuntimeWarning, match="cannot be used") as caught:
        assert torch.equal(result_of(doubling(7.0), ir.options(place)), torch.arange(8.0) * 7)
        assert torch.equal(result_of(doubling(8.0), ir.options(place)), torch.arange(8.0) * 8)
    assert len(caught) == 1 and str(place) in str(caught[0].message)


def test_cache_full_disk_warns_and_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = cache.os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).parent == tmp_path:
            raise OSError(28, "No space left on device")
        original(source, target)

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="cannot be written .*No space left"):
        assert torch.equal(result_of(doubling(11.0), ir.options(tmp_path)), torch.arange(8.0) * 11)
    assert list(tmp_path.iterdir()) == []


def test_cache_concurrent_processes_leave_one_whole_entry(tmp_path: Path) -> None:
    code = FILL.format(cache=str(tmp_path))
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    (entry,) = tmp_path.iterdir()
    assert cache._is_whole(entry)


def test_build_missing_compiler_is_none_and_one_clear_error(tmp_path: Path) -> None:
    assert build.find_compiler(str(tmp_path / "no-such-compiler")) is None
    options = Options.of({"cache": str(tmp_path), "cxx": "/no/such/compiler"}, None)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler \(/no/such/compiler\); set ASSAY_CXX"):
        load_kernels([doubling()], options)


def test_build_no_compiler_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    build.find_compiler.cache_clear()
    assert build.find_compiler("") is None
    build.find_compiler.cache_clear()


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_build_failing_compiler_shows_command_and_error(tmp_path: Path) -> None:
    body = 'case "$1" in --version) echo fake 1.0;; *) echo "unit.cpp:1: error: the tables are off" >&2; exit 3;; esac'
    options = Options.of({"cache": str(tmp_path / "c"), "cxx": script(tmp_path / "cxx", body)}, None)
    with pytest.raises(BuildError) as caught:
        load_kernels([doubling()], options)
    message = str(caught.value)
    assert "exit status 3" in message and "error: the tables are off" in message
    assert re.search(r"command: \S+/cxx .*-shared", message)
    assert list((tmp_path / "c").iterdir()) == []  # nothing half-made stays


def test_build_compiler_that_does_not_run_is_no_compiler(tmp_path: Path) -> None:
    assert build.find_compiler(script(tmp_path / "cxx", "exit 1")) is None


def test_build_two_units_link_into_one_object(tmp_path: Path) -> None:
    compiler = build.find_compiler("")
    assert compiler is not None
    output = build.build(["int f() { return 1; }", "int f(); int g() { return f(); }"], compiler, tmp_path / "two.so")
    assert output.stat().st_size > 0


def test_launch_checks_number_and_type_of_arguments(tmp_path: Path) -> None:
    function = load_kernels([doubling()], ir.options(tmp_path))["doubling"]
    with pytest.raises(TypeError, match="doubling takes 2 integers, 1 given"):
        function(1)
    with pytest.raises(TypeError):
        function("x", 1)


def test_launch_of_nothing_compiles_nothing(commands: list[list[str]], tmp_path: Path) -> None:
    assert load_kernels([], ir.options(tmp_path)) == {}
    assert commands == []


def test_launch_is_silent_when_all_is_well(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result_of(doubling(9.0), ir.options(tmp_path))


def test_launch_shares_torch_threads(tmp_path: Path) -> None:
    """One OpenMP runtime in the process: torch's, which holds torch.set_num_threads."""
    result_of(doubling(10.0), ir.options(tmp_path))
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    assert len(mapped) == 1
