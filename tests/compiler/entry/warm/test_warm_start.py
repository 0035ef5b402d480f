"""Calls made from what the cache kept: when they are, when they must not be, and that they are the calls they stand
for."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from assay.compiler import journal
from assay.compiler.capture.inputs import CallLeaf
from assay.compiler.entry.warm import fingerprint
from assay.compiler.entry.warm.size_guards import SizeGuards
from assay.compiler.errors import Unkeyed
from assay.compiler.ir.graph.roles import UserInput
from assay.compiler.toolchain import cache, serialized_call
from assay.harness.backends.stages import assay_loops
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.harness.run import RunRequest, run_case

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def counted_from_zero() -> Iterator[None]:
    torch._dynamo.reset()
    cache._warn_once.cache_clear()
    fingerprint.target_text.cache_clear()
    journal.reset()
    yield
    torch._dynamo.reset()


class Start:
    """Compiles as a process that has just begun would, with its cache in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, function: Function, *args: Any, dynamic: bool | None = False, **options: object) -> Any:
        torch._dynamo.reset()
        given = {"cache": str(self.folder), "warm": True, **options}
        return torch.compile(function, backend="assay", options=given, dynamic=dynamic)(*args)

    @property
    def entries(self) -> list[Path]:
        return sorted(self.folder.glob("*.call"))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path)


def restored() -> int:
    count = journal.totals()["restored"]
    assert isinstance(count, int)
    return count


def program(x: Tensor) -> Tensor:
    return torch.relu(x * 2 + 1).sum(0)


X = torch.linspace(-1, 1, 12).view(3, 4)


def test_warm_start_records_nothing(start: Start) -> None:
    first = start(program, X)
    assert restored() == 0 and journal.totals()["seconds"]
    journal.reset()
    second = start(program, X)
    assert torch.equal(first, second) and torch.equal(first, program(X))
    assert restored() == 1 and set(journal.totals()["seconds"]) == {"restore"}  # type: ignore[call-overload]
    assert journal.totals()["nodes"] == journal.totals()["nodes_generated"] == 4


def other_constant(x: Tensor) -> Tensor:
    return torch.relu(x * 2.5 + 1).sum(0)


def other_operator(x: Tensor) -> Tensor:
    return torch.relu(x * 2 - 1).sum(0)


def other_dimension(x: Tensor) -> Tensor:
    return torch.relu(x * 2 + 1).sum(1)


@pytest.mark.parametrize(
    ("function", "argument", "options"),
    [
        (program, X.t().contiguous().t(), {}),
        (program, torch.linspace(-1, 1, 12).view(2, 6), {}),
        (program, X.double(), {}),
        (program, X.bfloat16(), {}),
        (program, X.clone().requires_grad_(), {}),
        (program, torch.linspace(-1, 1, 14)[2:].view(3, 4), {}),
        (program, X, {"numerics": "cast"}),
        (program, X, {"target": "aten"}),
        (other_constant, X, {}),
        (other_operator, X, {}),
        (other_dimension, X, {}),
    ],
    ids=["strides", "shape", "dtype", "half", "grad", "offset", "numerics", "target", "number", "operator", "dim"],
)
def test_warm_start_tells_programs_apart(start: Start, function: Function, argument: Tensor, options: Any) -> None:
    start(program, X)
    got = start(function, argument, **options)
    assert restored() == 0
    assert torch.allclose(got, function(argument), atol=1e-2 if argument.dtype is torch.bfloat16 else 1e-6)
    again = start(function, argument, **options)
    assert restored() == 1 and torch.equal(again, got) and again.requires_grad == argument.requires_grad


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ],
    ids=["no_grad", "inference", "autocast", "attention"],
)
def test_warm_start_tells_modes_apart(start: Start, around: Callable[[], AbstractContextManager[Any]]) -> None:
    w = torch.ones(4, 2, requires_grad=True)

    def product(x: Tensor) -> Tensor:
        return torch.relu(x @ w)

    start(product, X)
    for expected in (0, 1):
        with around():
            got = start(product, X)
            eager = product(X)
        assert restored() == expected
        assert (got.dtype, got.requires_grad, got.is_inference()) == (
            eager.dtype,
            eager.requires_grad,
            eager.is_inference(),
        )


@pytest.mark.parametrize(
    "library",
    [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.mkldnn.matmul],  # type: ignore[attr-defined]
    ids=["cuda", "cudnn", "mkldnn"],
)
def test_warm_start_tells_precisions_of_float32_apart(start: Start, library: Any) -> None:
    """Set library by library, where torch no longer says one precision of all."""
    before = library.fp32_precision
    try:
        for precision, expected in (("ieee", 0), ("tf32", 0), ("ieee", 1), ("tf32", 2)):
            library.fp32_precision = precision
            assert torch.equal(start(program, X), program(X))
            assert restored() == expected
    finally:
        library.fp32_precision = before


@pytest.mark.parametrize("name", ["__version__", "sources", "default dtype"])
def test_warm_start_tells_versions_apart(
    start: Start, name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    start(program, X)
    if name == "__version__":
        monkeypatch.setattr(torch, "__version__", "9.9.9")
    elif name == "sources":
        monkeypatch.setattr(fingerprint, "sources_digest", lambda: "other sources")
    else:
        request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
        torch.set_default_dtype(torch.float64)
    start(program, X)
    assert restored() == 0 and len(start.entries) == 2


def test_warm_start_tells_zeros_and_nans_apart() -> None:
    texts = [fingerprint._text(value) for value in (0.0, -0.0, 0, False, math.nan, -math.nan, None, "0", (0,), [0])]
    assert len(set(texts)) == len(texts)


def test_warm_start_restores_a_backward_and_its_parts(start: Start) -> None:
    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(x) * y, torch.exp(y)

    def gradients(function: Function, which: int) -> tuple[Tensor | None, ...]:
        x, y = (X.clone().requires_grad_() for _ in range(2))
        results = function(x, y)
        (results[which].sum() if which < 2 else (results[0] * results[1]).sum()).backward()
        return x.grad, y.grad

    for expected in (0, 3):
        journal.reset()
        for which in range(3):
            got = gradients(lambda x, y: start(two, x, y), which)
            for one, other in zip(got, gradients(two, which), strict=True):
                assert (one is None) == (other is None)
                assert one is None or torch.allclose(one, other)  # type: ignore[arg-type]
        assert restored() == max(expected, 2)
    assert "capture" not in journal.totals()["seconds"], "all three backwards were kept"  # type: ignore[operator]


def test_warm_start_counts_the_nodes_of_a_cold_one(start: Start) -> None:
    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(x) * y, torch.exp(y)

    counted = []
    for _ in range(2):
        journal.reset()
        x, y = (X.clone().requires_grad_() for _ in range(2))
        start(two, x, y)[0].sum().backward()
        totals = journal.totals()
        counted.append((totals["nodes"], totals["nodes_generated"], totals["kernels"]))
    assert restored() == 1 and counted[0] == counted[1]


def test_warm_start_builds_a_backward_that_nobody_had_run(start: Start) -> None:
    def run(backward: bool) -> Tensor | None:
        x = X.clone().requires_grad_()
        result = start(program, x)
        if backward:
            result.sum().backward()
        return x.grad

    run(backward=False)
    assert torch.equal(run(backward=True), torch.where(X * 2 + 1 > 0, 2.0, 0.0))  # type: ignore[arg-type]
    assert restored() == 1 and "differentiate" in journal.totals()["seconds"]  # type: ignore[operator]
    journal.reset()
    run(backward=True)
    assert restored() == 1 and set(journal.totals()["seconds"]) == {"restore"}, "it is kept now"  # type: ignore[call-overload]


def test_warm_start_writes_and_aliases_as_the_first(start: Start) -> None:
    def write(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        return x, (x + y).t()

    for expected in (0, 1):
        x, y = X.clone(), X.clone()
        got, other = start(write, x, y)
        assert restored() == expected
        assert got is x and torch.equal(x, X * 2) and torch.equal(other, (X * 3).t()) and x._version == 1
    shared = torch.zeros(8)
    got, _ = start(write, shared[:6].view(2, 3), shared[2:].view(2, 3))  # the guard is restored with the call
    assert got.data_ptr() == shared.data_ptr()


def test_warm_start_recompiles_for_overlaps(start: Start) -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    def apart() -> tuple[Tensor, Tensor]:
        return torch.arange(6.0)[:4], torch.arange(6.0)[2:]

    start(write, *apart())
    torch._dynamo.reset()
    compiled = torch.compile(write, backend="assay", options={"cache": str(start.folder), "warm": True}, dynamic=False)
    assert torch.equal(compiled(*apart()), write(*apart())) and restored() == 1
    memory, eager = torch.arange(6.0), torch.arange(6.0)
    assert torch.equal(compiled(memory[:4], memory[2:]), write(eager[:4], eager[2:])) and torch.equal(memory, eager)


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "other data", "kernels gone"])
def test_warm_start_never_reads_a_damaged_entry(start: Start, damage: str) -> None:
    expected = start(program, X)
    (path,) = start.entries
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-7])
    elif damage == "altered":
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other data":
        cache.keep(str(start.folder), path.stem, b"cos\nsystem\n(S'true'\ntR.")
    else:
        next(start.folder.glob("*.so")).unlink()
    with nullcontext() if damage in ("other data", "kernels gone") else pytest.warns(RuntimeWarning, match="damaged"):
        assert torch.equal(start(program, X), expected)
    assert restored() == 0
    assert torch.equal(start(program, X), expected) and restored() == 1, "it has been made anew"


def test_warm_start_looks_up_no_foreign_name(tmp_path: Path) -> None:
    with pytest.raises(Unkeyed, match="system is not looked up"):
        serialized_call.loads(b"cposix\nsystem\n(S'true'\ntR.")


@torch.library.custom_op("warm_start::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Holds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: twice(x) + 1, "an operator of the user's own"),
        (Holds(), "holds a module or an object of its own"),
    ],
    ids=["custom operator", "higher-order operator"],
)
def test_warm_start_leaves_alone_what_has_no_text(start: Start, function: Function, reason: str) -> None:
    for _ in range(2):
        assert torch.allclose(start(function, X), function(X))
    assert restored() == 0 and not start.entries
    (said,) = journal.totals()["uncached"].items()  # type: ignore[attr-defined]
    assert reason in said[0] and said[1] == 2


def test_warm_start_is_an_option(start: Start) -> None:
    for _ in range(2):
        start(program, X, warm=False)
    assert restored() == 0 and not start.entries and not journal.totals()["uncached"]


PROCESS = """
import sys, torch
def f(x, w):
    return torch.relu(x @ w).sum()
for size in (3, 4):
    torch._dynamo.reset()
    x, w = torch.ones(size, 4), torch.ones(4, 2, requires_grad=True)
    f_compiled = torch.compile(f, backend="assay", options={"cache": sys.argv[1], "warm": True}, dynamic=False)
    f_compiled(x, w).backward()
    assert torch.equal(w.grad, torch.full((4, 2), float(size)))
"""


def test_warm_start_in_processes_side_by_side(start: Start) -> None:
    command = [sys.executable, "-c", PROCESS, str(start.folder)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert not list(start.folder.glob("new-*")) and len(start.entries) == 2
    for size in (3, 4):
        x, w = torch.ones(size, 4), torch.ones(4, 2, requires_grad=True)
        start(lambda x, w: torch.relu(x @ w).sum(), x, w).backward()
        assert torch.equal(w.grad, torch.full((4, 2), float(size)))  # type: ignore[arg-type]
    assert restored() == 2 and set(journal.totals()["seconds"]) == {"restore"}  # type: ignore[call-overload]


def sizes_of(*hints: int) -> tuple[ShapeEnv, SizeGuards, list[torch.SymInt]]:
    """The guards of a call with one input that has these sizes, all symbolic."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(hints))
    fake = mode.from_tensor(torch.ones(hints), symbolic_context=context, source=ConstantSource("x"))
    leaf = CallLeaf(UserInput(0), fake, False, True)
    return env, SizeGuards.of((leaf,), env), [size for size in fake.shape if isinstance(size, torch.SymInt)]


def test_warm_start_keeps_what_a_compile_assumed_of_sizes() -> None:
    env, guards, (rows, width) = sizes_of(12, 7)
    assert guards.added() == ""
    assert rows > 5 and rows != width
    text = guards.added()
    for hints, holds in (((9, 4), True), ((4, 9), False), ((6, 6), False)):
        env, other, _ = sizes_of(*hints)
        before = len(env.guards)
        assert other.hold(text) is holds
        assert (len(env.guards) > before) is holds, "it is recompiled when they no longer hold; a miss assumes nothing"


def test_warm_start_keeps_no_compile_that_fixes_a_size() -> None:
    _, guards, (rows, _) = sizes_of(12, 7)
    assert rows == 12
    with pytest.raises(Unkeyed, match="constants"):
        guards.added()


def test_warm_start_serves_other_sizes(start: Start) -> None:
    def rows(x: Tensor) -> Tensor:
        return torch.cat([x, x * 2]).softmax(0) * x.shape[0]

    for size, expected in ((5, 0), (9, 1), (700, 2)):
        x = torch.linspace(-1, 1, size * 4).view(size, 4).requires_grad_()
        got = start(rows, x, dynamic=True)
        got[0].sum().backward()
        gradient, x.grad = x.grad, None
        rows(x)[0].sum().backward()
        assert torch.allclose(got, rows(x)) and torch.allclose(gradient, x.grad, atol=1e-6)  # type: ignore[arg-type]
        assert restored() == expected


@pytest.mark.parametrize("sizes", [(3, 16), (16, 3)])
def test_warm_start_records_a_backward_of_other_sizes_at_the_cut_that_was_kept(
    start: Start, sizes: tuple[int, int]
) -> None:
    """Few rows are cheaper to save in another place than many. The call was kept without a backward."""

    def centred(x: Tensor, w: Tensor) -> Tensor:
        y = torch.nn.functional.linear(x, w, w[0])
        return (y - y.mean(0)).square()

    w = torch.randn(6, 6, requires_grad=True)
    first, x = (torch.randn(size, 6) for size in sizes)
    start(centred, first, w, dynamic=True)
    (got,) = torch.autograd.grad(start(centred, x, w, dynamic=True).sum(), w)
    (expected,) = torch.autograd.grad(centred(x, w).sum(), w)
    assert torch.allclose(got, expected, atol=1e-4) and restored() == 1


def test_warm_start_tells_apart_what_dynamo_assumed_of_an_integer(start: Start) -> None:
    """Dynamo guards on the sign of `n` while it traces, so the compile itself asks nothing more."""

    def last(x: Tensor, n: int) -> Tensor:
        return x[:n] * 2

    for n in (2, -1, -7, 9, 3, -2, 4):
        assert torch.equal(start(last, X, n, dynamic=True), last(X, n)), n


def test_warm_start_is_not_for_kernels_of_others(start: Start) -> None:
    start(program, X)
    options = {"cache": str(start.folder), "warm": True}
    torch._dynamo.reset()
    assert torch.equal(torch.compile(program, backend=assay_loops, options=options, dynamic=False)(X), program(X))
    assert restored() == 0, "the reference has run, not what was kept"


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_warm_start_sees_operators_that_are_implemented_anew(start: Start) -> None:
    start(program, X)
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("special_erfcx", lambda x: x, "CPU")
        start(program, X)
    finally:
        library._destroy()
    assert restored() == 0 and "other implementations" in next(iter(journal.totals()["uncached"]))  # type: ignore[call-overload]
    start(program, X)
    assert restored() == 1


def test_warm_start_survives_the_first_batch_of_a_process(start: Start) -> None:
    """Torch brings implementations for batches of its own then."""
    start(program, X)
    torch.func.vmap(torch.sin)(X)
    start(program, X)
    assert restored() == 1


def test_warm_start_does_all_that_a_cold_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 32nd program of the semantics suite, in all its modes, held against eager cold and then warm. What the
    ledger knows to differ differs alike."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setenv("ASSAY_WARM", "1")
    cases = discover(["semantics"])[::32]
    found, known, today = [], ledger.read(), datetime.date.today()
    for _ in range(2):
        journal.reset()
        results = [
            run_case(each, mode, "assay,target=aten", RunRequest(timed=False)) for each in cases for mode in each.modes
        ]
        found.append([(result.case, result.mode, result.verdict) for result in results])
        assert all(ledger.judge(result, known, today).passes for result in results)
    assert found[0] == found[1]
    assert restored() >= len(cases)


def test_another_gpu_is_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process uses one: what is called for it depends on it, though all kernels be on the CPU."""
    start = Start(tmp_path)

    class Properties:
        name, major, minor, multi_processor_count, total_memory = "one", 9, 0, 132, 1 << 37

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: Properties)
    for name, entries in (("one", 1), ("one", 1), ("other", 2)):
        Properties.name = name
        start(lambda x: x.sin() + 1, torch.ones(3))
        assert len(start.entries) == entries
