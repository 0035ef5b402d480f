"""The host function: what it takes, frees, returns, and how it reads."""

from __future__ import annotations

import dataclasses
import gc
import mmap
import os
import platform
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.host import LARGE_BYTES, emit, load
from assay.compiler.ir.graph.roles import Saved
from assay.compiler.ir.loops.kernel import Free, Launch
from assay.compiler.toolchain import allocator as pages
from assay.reference.loops import as_function
from tests.lowering import assert_same, check, executable, planned, traced

aten = torch.ops.aten


def test_host_empties_its_list_and_frees_inputs_early() -> None:
    """The first input dies with its last use, before the graph ends."""
    seen: list[bool] = []
    x, w = torch.randn(3, 3), torch.randn(3, 3)
    alive = weakref.ref(x)
    schedule = planned(traced(lambda x, w: ((x @ w).exp() @ w,), x, w))
    source = emit(schedule).replace("    return", "    watch()\n    return")
    kernels = {kernel.name: (lambda *addresses: None) for kernel in schedule.kernels}

    def watch() -> None:
        gc.collect()
        seen.append(alive() is None)

    args = [x, w]
    del x
    load(source, {**kernels, "watch": watch})(args)
    assert args == [] and seen == [True]


def test_host_frees_every_value_that_it_does_not_return() -> None:
    schedule = planned(traced(lambda x: ((x @ x).relu() @ x,), torch.randn(3, 3)))
    freed = {name for step in schedule.steps if isinstance(step, Free) for name in step.names}
    made = {step.name for step in schedule.steps if hasattr(step, "name")}
    returned = {output.name for output in schedule.outputs}
    assert made | set(schedule.inputs) == freed | returned and not freed & returned


def test_host_without_kernels_is_the_same_program() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, positions = torch.max(x @ y, 1)
        return torch.softmax(x + 1, -1).view(-1), values, positions, x.t().split(2)[0] * 2

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    schedule = planned(traced(function, x, y), generate=False)
    assert schedule.kernels == () and schedule.counts.generated == 0
    for ours, theirs in zip(executable(schedule)([x, y]), function(x, y), strict=True):
        assert_same(ours, theirs, "aten", rtol=0, atol=0)


def test_host_keeps_random_operators_in_order() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.rand_like(x)
        b = torch.randn_like(x)
        return b * 2, a + 1, aten.native_dropout(x, 0.5, True)[0] + 1

    x = torch.randn(4, 4)
    run = executable(planned(traced(function, x)))
    torch.manual_seed(3)
    found = run([x])
    torch.manual_seed(3)
    for ours, theirs in zip(found, function(x), strict=True):
        assert_same(ours, theirs, "random", rtol=0, atol=0)


def test_host_gives_outputs_that_are_inputs_views_or_repeated() -> None:
    def function(x: torch.Tensor) -> tuple[Any, ...]:
        y = x + 1
        return x, x.t(), y, y, y.view(-1)[1:3], None

    x = torch.randn(2, 3)
    module = traced(lambda x: function(x)[:-1], x)
    found = executable(planned(module))([x])
    assert found[0] is x and found[1].data_ptr() == x.data_ptr() and found[1]._base is x
    assert found[2] is found[3]
    assert found[4].untyped_storage().data_ptr() == found[2].untyped_storage().data_ptr()
    assert found[4].storage_offset() == 1


def test_host_takes_symbolic_sizes_from_its_inputs() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.cat([x, y * 2], 0)
        return z.softmax(-1), z.mean(0), z.view(-1), z.sum() * x.shape[0], torch.arange(z.shape[0]) + 1

    program = traced(function, torch.randn(4, 6), torch.randn(3, 6), mode="symbolic")
    run = executable(planned(program))
    for rows in (2, 5, 7):
        x, y = torch.randn(rows, 6), torch.randn(3, 6)
        for ours, theirs in zip(run([x, y]), function(x, y), strict=True):
            assert_same(ours, theirs, f"{rows} rows")


def test_host_restrides_an_unexpected_result_of_aten() -> None:
    """A result whose real strides are not the traced ones is copied into them before kernels read it."""
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    schedule = planned(traced(lambda x, w: ((x @ w) * 2,), x, w))
    namespace = {k.name: v for k, v in zip(schedule.kernels, _functions(schedule), strict=True)}
    source = emit(schedule).replace("torch._C._VariableFunctions.mm", "strange")

    def strange(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b).t().contiguous().t()

    (found,) = load(source, {**namespace, "strange": strange})([x, w])
    assert_same(found, (x @ w) * 2, "restrided")


def test_host_conjugates_a_result_of_aten_that_is_yet_to_be() -> None:
    """As `svd` gives vectors on a GPU, of which fake tensors say nothing."""
    x, w = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 5, dtype=torch.complex64)
    schedule = planned(traced(lambda x, w: ((x @ w) * 2,), x, w))
    namespace = {k.name: v for k, v in zip(schedule.kernels, _functions(schedule), strict=True)}
    source = emit(schedule).replace("torch._C._VariableFunctions.mm", "lazy")
    (found,) = load(source, {**namespace, "lazy": lambda a, b: (a @ b).conj().resolve_conj().conj()})([x, w])
    assert_same(found, (x @ w) * 2, "conjugated")


def test_host_restrides_what_backward_will_read() -> None:
    """A result that is saved, and that no kernel of this graph reads, has the traced strides as well."""
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    program = traced(lambda x, w: (x @ w,), x, w)
    signature = dataclasses.replace(program.signature, outputs=(Saved("mm"),))
    for outputs, strides in ((program.signature, (1, 3)), (signature, (5, 1))):
        schedule = planned(dataclasses.replace(program, signature=outputs))
        source = emit(schedule).replace("torch._C._VariableFunctions.mm", "strange")
        (found,) = load(source, {"strange": lambda a, b: (a @ b).t().contiguous().t()})([x, w])
        assert found.stride() == strides


def _functions(schedule: Any) -> list[Any]:
    return [as_function(kernel) for kernel in schedule.kernels]


def test_host_reads_like_code() -> None:
    schedule = planned(traced(lambda x, w: ((x @ w).relu() + 1,), torch.randn(3, 4), torch.randn(4, 5)))
    source = emit(schedule)
    assert "mm = aten_mm(x_1, w_1)" in source
    assert "# add" in source and "kernel_0(mm.data_ptr(), add.data_ptr())" in source
    assert source.rstrip().endswith("return (add,)")


def test_host_constants_and_list_arguments() -> None:
    table = torch.tensor([1.0, 2.0, 3.0])

    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + table, aten.index.Tensor(x, [None, i]), aten.cat([x, x, x, x, x], 1)

    check(function, torch.randn(2, 3), torch.tensor([2, 0]))


def test_launches_name_their_origins() -> None:
    schedule = planned(traced(lambda x: (x.exp() + 1,), torch.randn(3)))
    (launch,) = (step for step in schedule.steps if isinstance(step, Launch))
    assert launch.origins == ("add",)


def test_large_results_are_asked_for_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_FROM_HEAP", 0)
    width = 1024
    enough = LARGE_BYTES // (4 * width)
    compiled = torch.compile(lambda x: x * 2, backend="assay", dynamic=False)
    for rows, wanted in ((enough - 1, 0), (enough, 1)):
        x = torch.ones(rows, width)
        with mock.patch.object(pages, "_advise", return_value=0) as advise:
            assert torch.equal(compiled(x), torch.full((rows, width), 2.0))
        assert advise.call_count == wanted
    ((first, extent, advice), _) = advise.call_args
    assert first % mmap.PAGESIZE == extent % mmap.PAGESIZE == 0 and advice == mmap.MADV_HUGEPAGE
    assert LARGE_BYTES - 2 * mmap.PAGESIZE <= extent <= LARGE_BYTES


MANY = """
import ctypes, torch
for threshold in (-1, -3):  # the C library's own, which it would raise by what happens to be freed
    ctypes.CDLL(None).mallopt(threshold, 1 << 17)
def f(x):
    many = [(x + k) @ x for k in range(24)]
    while len(many) > 1:
        many = [many[0] @ many[1], *many[2:]]
    return many[0]
x = torch.ones(300, 300) / 300
"""

LARGE = """
import torch
from torch import Tensor
f = lambda x: x * 2
x = torch.ones(4096, 4096)
"""

COUNTED = """
import resource
f = torch.compile(f, backend="assay", dynamic=False)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with torch.no_grad():
    for _ in range(6):
        f(x)
    each = []
    for _ in range(11):
        before = faults()
        f(x)
        each.append(faults() - before)
print(sorted(each)[5])
"""
"""The median of calls: a small block put where the last result was leaves too little for the next, which is fresh."""


def faults_of_a_call(program: str, **variables: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", program + COUNTED],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it likes")
def test_large_results_come_from_where_the_last_ones_were_freed() -> None:
    """64 MB: 32 huge pages, or 16,384 small ones."""
    assert faults_of_a_call(LARGE, ASSAY_KEEP_MEMORY="1") < 16 < faults_of_a_call(LARGE, ASSAY_KEEP_MEMORY="0")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it likes")
def test_what_a_call_frees_stays_with_the_process() -> None:
    """Temporaries of 0.36 MB, 24 at a time: 2,100 pages of 4 KB."""
    assert faults_of_a_call(MANY, ASSAY_KEEP_MEMORY="1") < 100 < faults_of_a_call(MANY, ASSAY_KEEP_MEMORY="0")


def foretold(
    name: str, real: Callable[[Tensor], Tensor], fake: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """An operator of which a fake tensor says something else."""
    operator = torch.library.custom_op(f"host_emit::{name}", mutates_args=())(_typed(real))
    operator.register_fake(_typed(fake))
    return operator


def _typed(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def typed(x: Tensor) -> Tensor:
        return function(x)

    typed.__annotations__ = {"x": Tensor, "return": Tensor}
    return typed


def test_a_result_of_another_dtype_than_foretold_is_read_as_what_it_is() -> None:
    halves = foretold("halves", lambda x: x.bfloat16(), torch.empty_like)
    x = torch.arange(1.0, 9.0)
    assert torch.equal(torch.compile(lambda x: halves(x) * 2, backend="assay")(x), x * 2)


def test_a_result_of_another_size_than_foretold_is_an_error() -> None:
    shorter = foretold("shorter", lambda x: x[:3].clone(), torch.empty_like)
    with pytest.raises(RuntimeError, match=r"has the size \(3,\), and \(8,\) was foretold"):
        torch.compile(lambda x: shorter(x) * 2, backend="assay")(torch.arange(8.0))
