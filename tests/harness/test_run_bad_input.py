"""Cases and backends that are wrong: a verdict, and a message that says what, where and what to do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.compiler.errors import Unsupported
from assay.harness.backends.registry import Backend, BackendError, backend_names, resolve
from assay.harness.case import Case, case
from assay.harness.discover import discover
from assay.harness.processes.child import last_words
from assay.harness.processes.isolate import run_isolated
from assay.harness.run import RunRequest, run_case

HERE = Path(__file__).name


@case()
def plain() -> Any:
    return (lambda x: x + 1), (torch.randn(3, requires_grad=True),), {}


@case()
def raises_while_made() -> Any:
    raise OSError("the weights are not there")


@case()
def exits_while_made() -> Any:
    sys.exit(3)


@case()
def returns_pair() -> Any:
    return (lambda x: x), (torch.randn(3),)


@case()
def returns_list_of_args() -> Any:
    return (lambda x: x), [torch.randn(3)], {}


@case()
def returns_no_callable() -> Any:
    return torch.randn(3), (), {}


@case(modes=("infer",))
def only_infer() -> Any:
    return (lambda x: x), (torch.randn(3),), {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (raises_while_made, "OSError: the weights are not there"),
        (exits_while_made, "SystemExit: 3"),
        (returns_pair, "returned a tuple of 2"),
        (returns_list_of_args, "returned a list in the place of the args"),
        (returns_no_callable, "returned a Tensor in the place of the callable"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_run_says_what_is_wrong_with_a_case(wrong: Case, said: str) -> None:
    result = run_case(wrong, "infer", "eager-none")
    assert result.verdict == "no-oracle"
    assert said in result.detail and HERE in result.detail and wrong.name in result.detail


def test_run_refuses_a_mode_that_the_case_does_not_have() -> None:
    with pytest.raises(ValueError, match="only_infer has no mode 'train'; it has infer"):
        run_case(only_infer, "train", "eager-none")


def test_run_refuses_an_unknown_backend_with_the_known_ones() -> None:
    with pytest.raises(BackendError, match="'inducter' does not exist; did you mean 'inductor'") as caught:
        run_case(plain, "infer", "inducter")
    assert all(name in str(caught.value) for name in ("aot_eager", "eager-none", "assay", "module:attribute"))


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_module:f", "ModuleNotFoundError"), ("math:nope", "nope"), ("math:pi", "must be callable")],
)
def test_run_refuses_a_backend_that_cannot_be_imported(name: str, said: str) -> None:
    with pytest.raises(BackendError, match=said):
        resolve(name)


def test_run_knows_the_backends_of_torch() -> None:
    assert {"eager", "aot_eager", "inductor", "eager-none", "assay", "assay_reference"} <= set(backend_names())


def refuses(graph: Any, inputs: Any) -> Any:
    raise Unsupported("no such operator in this world")


def not_implemented(graph: Any, inputs: Any) -> Any:
    raise NotImplementedError("not yet")


def broken_compiler(graph: Any, inputs: Any) -> Any:
    raise ZeroDivisionError("while compiling")


def broken_code(graph: Any, inputs: Any) -> Any:
    def call(*args: Any) -> Any:
        raise ZeroDivisionError("while running")

    return call


def broken_code_not_implemented(graph: Any, inputs: Any) -> Any:
    def call(*args: Any) -> Any:
        raise NotImplementedError("while running")

    return call


def exits(graph: Any, inputs: Any) -> Any:
    sys.exit(7)


def honest(graph: Any, inputs: Any) -> Any:
    return graph.forward


honest.runs_in_eager = True  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("backend", "verdict", "said"),
    [
        ("honest", "same", ""),
        ("refuses", "unsupported", "no such operator in this world"),
        ("not_implemented", "unsupported", "not yet"),
        ("broken_compiler", "crash", "ZeroDivisionError"),
        ("broken_code", "crash", "while running"),
        ("broken_code_not_implemented", "crash", "NotImplementedError"),
        ("exits", "crash", "SystemExit"),
    ],
)
def test_run_gives_a_verdict_about_a_broken_backend(backend: str, verdict: str, said: str) -> None:
    result = run_case(plain, "infer", f"{__name__}:{backend}")
    assert result.verdict == verdict and said in result.detail, result.detail
    if verdict == "crash":
        assert "step 1, call" in result.detail


def test_run_gives_a_verdict_about_a_wrap_that_raises() -> None:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        raise ZeroDivisionError("before any call")

    result = run_case(plain, "infer", Backend("wrapping", wrap))
    assert result.verdict == "crash" and "before any call" in result.detail


FILE = """
import ctypes, os, sys, time
import torch
from assay.harness.case import case

@case()
def fine():
    return torch.sin, (torch.randn(3),), {}

@case()
def hangs():
    def program(x):
        time.sleep(600)
    return program, (torch.randn(3),), {}

@case()
def dies():
    def program(x):
        print("about to die", file=sys.stderr)
        ctypes.string_at(0)
    return program, (torch.randn(3),), {}

@case()
def leaves():
    def program(x):
        os._exit(5)
    return program, (torch.randn(3),), {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "mine.py").write_text(FILE)
    return path


def isolated(file: Path, name: str, timeout_s: float = 120.0) -> Any:
    (found,) = discover((f"{file}::{name}",))
    return run_isolated(found, "infer", "eager-none", RunRequest(timed=False), timeout_s=timeout_s)


def test_run_isolated_gives_the_row(file: Path) -> None:
    result = isolated(file, "fine")
    assert (result.case, result.mode, result.backend, result.verdict) == ("mine.fine", "infer", "eager-none", "same")


def test_run_isolated_outlives_a_signal(file: Path) -> None:
    result = isolated(file, "dies")
    assert result.verdict == "crash" and "SIGSEGV" in result.detail and "about to die" in result.detail


def test_run_isolated_outlives_an_exit(file: Path) -> None:
    result = isolated(file, "leaves")
    assert result.verdict == "crash" and "status 5" in result.detail


def test_run_isolated_ends_a_hang(file: Path) -> None:
    start = time.monotonic()
    result = isolated(file, "hangs", timeout_s=15.0)
    assert result.verdict == "timeout" and "15 s" in result.detail and time.monotonic() - start < 60


def test_run_isolated_needs_an_origin() -> None:
    with pytest.raises(ValueError, match="no origin"):
        run_isolated(plain, "infer", "eager")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zooo", "'zooo' is not a suite"),
        ("nothing_here.py", "no such file"),
        ("json", "holds no cases"),
        ("assay.harness.case", "holds no cases"),
        ("zoo.bert[0]", "'zoo' is no suite of batches"),
        ("ops.nothing.float32[0]", "ops has no batch 'nothing.float32'"),
        ("ops.var.float32.forward[no]", "no sample 'no'. Its samples are 0 contiguous, 0 transposed"),
    ],
)
def test_run_discover_names_what_is_wrong(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        discover((name,))


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("import torch\nx = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("import torch\n\ndef f(:\n    pass\n", 3, "SyntaxError"),
        ("import no_such_thing\n", 1, "ModuleNotFoundError"),
        ("import sys\nsys.exit(1)\n", 2, "SystemExit"),
        (
            "from assay import case\n\n@case(modes=('fly',))\ndef f(): ...\n",
            3,
            "mode 'fly' does not exist",
        ),
    ],
)
def test_run_discover_points_into_a_broken_file(tmp_path: Path, source: str, line: int, said: str) -> None:
    (path := tmp_path / "broken.py").write_text(source)
    with pytest.raises(ValueError, match=said) as caught:
        discover((str(path),))
    assert f"{path}:{line}" in str(caught.value)


def test_run_discover_lists_the_cases_of_a_file(file: Path) -> None:
    assert [found.name for found in discover((str(file),))] == ["mine.fine", "mine.hangs", "mine.dies", "mine.leaves"]
    with pytest.raises(ValueError, match="no case 'fin'; did you mean 'fine'"):
        discover((f"{file}::fin",))


@pytest.mark.parametrize(("form", "modes"), [("forward", ("infer",)), ("compile", ("infer", "train"))])
def test_run_discover_finds_the_sample_of_a_batch(form: str, modes: tuple[str, ...]) -> None:
    name = f"ops.var.float32.{form}[0 contiguous]"
    (found,) = discover((name,))
    assert (found.name, found.origin, found.modes) == (name, name, modes)
    function, args, kwargs = found.make("tiny")
    assert args[0].shape == (5, 5, 5) and function(*args, **kwargs).shape == ()
    assert args[0] is not found.make("tiny")[1][0]


def test_run_discover_names_cases_by_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "shelf"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "texts.py").write_text(FILE)
    (package / "test_texts.py").write_text("raise AssertionError('not to be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    whole, part, one = discover(("shelf",)), discover(("shelf.texts",)), discover(("shelf.fine",))
    assert [found.name for found in whole] == [found.name for found in part] and one == whole[:1]
    assert (one[0].name, one[0].origin) == ("shelf.fine", "shelf.texts")


def test_run_discover_refuses_two_cases_of_one_name(tmp_path: Path) -> None:
    source = "from assay import case\none = case(name='same')(lambda: 0)\ntwo = case(name='same')(lambda: 1)\n"
    (path := tmp_path / "twins.py").write_text(source)
    with pytest.raises(ValueError, match=r"two cases are named 'twins\.same'"):
        discover((str(path),))


def test_run_takes_settings_behind_a_backends_name() -> None:
    settings = resolve("assay,dynamic,target=aten").name
    assert settings == "assay,dynamic,target=aten"
    with pytest.raises(
        BackendError,
        match="'quick' is neither dynamic nor fullgraph nor compiled_autograd nor own_backward nor key=value",
    ):
        resolve("assay,quick")


LOCATED = """\
/aten/IndexKernel.cu:16: gather: block: [0,0,0], thread: [32,0,0] Assertion `index < size` failed.
a warning
Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "threading.py", line 359 in wait

Current thread 0x00008f (most recent call first):
  File "innermost.py", line 3 in call
  File "outer.py", line 7 in main
"""


def test_last_words_are_of_the_thread_that_ended() -> None:
    words = last_words(LOCATED).splitlines()
    assert "Assertion `index < size`" in words[0] and "Fatal Python error: Segmentation fault" in words
    assert words[-2:] == ['  File "innermost.py", line 3 in call', '  File "outer.py", line 7 in main']
    assert not any("threading.py" in line for line in words)
    assert last_words("") == "(nothing)" and last_words("a\nb\n") == "a\nb"
