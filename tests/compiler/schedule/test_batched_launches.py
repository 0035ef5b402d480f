"""Launches of one kernel over other tensors, as one: which those are, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.compiler.codegen.triton.equal_stores import twins_of
from assay.compiler.ir.loops.independent_stores import components, with_buffers
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import CPU, Allocate, Free, Launch, Reuse, Schedule
from assay.compiler.schedule import batched_launches, order
from assay.compiler.schedule.dependence import may_overwrite
from assay.compiler.schedule.memory import reuse
from tests import kernel_ir as ir
from tests.kernel_ir import call, const, i, load, loops, store
from tests.lowering import check, planned, traced

Step = Callable[..., tuple[torch.Tensor, ...]]


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_launches, "DEVICE", "cpu")


def launches(schedule: Schedule) -> list[Launch]:
    return [step for step in schedule.steps if isinstance(step, Launch)]


def tensors(count: int, *shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def decayed(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A step of gradient descent over each parameter, with its average."""
    params, grads, means = (given[part::3] for part in range(3))
    found = []
    for p, g, m in zip(params, grads, means, strict=True):
        mean = m * 0.9 + g * 0.1
        found += [p - mean * 0.01, mean]
    return tuple(found)


@pytest.mark.parametrize("count", [2, 5, 32])
def test_plan_makes_steps_over_tensors_of_one_shape_one_launch(count: int) -> None:
    schedule = check(decayed, *tensors(3 * count, 7, 9))
    (launch,) = launches(schedule)
    assert launch.kernel.name == f"kernel_0_x{count}" and len(launch.arguments) == 5 * count
    assert len(components(launch.kernel)) == count


def test_plan_makes_no_launch_larger_than_it_may_be() -> None:
    schedule = check(decayed, *tensors(3 * 40, 6))
    found = [len(launch.kernel.buffers) // 5 for launch in launches(schedule)]
    assert sum(found) == 40 and max(found) == batched_launches.MOST_SETS


def test_plan_leaves_launches_apart_of_which_one_needs_the_other() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((x @ (y @ x).tanh()).tanh(),)

    schedule = check(twice, *tensors(2, 4, 4))
    assert [launch.kernel.name for launch in launches(schedule)] == ["kernel_0", "kernel_0"]


@pytest.mark.parametrize(("operands", "count"), [(("b", "y"), 1), (("b", "x"), 2), (("a", "y"), 2)])
def test_plan_leaves_launches_apart_that_share_a_tensor(operands: tuple[str, str], count: int) -> None:
    """The memory of a tensor may be a result's, whose instances are no other set's."""
    total = store("c", i, call("add", load("a", i), load("b", i)))
    kernel = ir.make_run(loops(i=6), [total], {name: torch.zeros(6) for name in "abc"}, {}).kernel
    units = []
    for position, names in enumerate([("a", "x"), operands]):
        made = f"sum_{position}"
        allocate = Allocate(made, (Int(6),), (Int(1),), torch.float32, CPU)
        launch = Launch(kernel, (*names, made), (), (made,))
        units.append(order._Unit(position, names, (made,), (allocate, launch)))
    assert sum(isinstance(step, Launch) for step in order._sorted(units)) == count


def test_components_share_single_numbers_that_are_read() -> None:
    def scaled(rate: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x * rate for x in given)

    (launch,) = launches(check(scaled, torch.tensor(0.5), *tensors(4, 50)))
    (twins,) = twins_of(launch.kernel)
    assert len(launch.arguments) == 9 and len(components(launch.kernel)) == len(twins.sets) == 4
    assert len(set.intersection(*map(set, twins.sets))) == 1


def test_dependence_keeps_a_number_that_other_stores_read() -> None:
    x, rate = torch.arange(3.0), torch.tensor(2.0)
    scaled = call("mul", load("x", i), load("rate", 0))
    stores = [store("next", 0, call("add", load("rate", 0), const(1))), store("y", i, scaled)]
    run = ir.make_run(loops(i=3), stores, {"x": x, "rate": rate}, {"next": rate + 1, "y": x * 2})
    assert not may_overwrite(run.kernel, "rate", "next")


def test_plan_makes_no_reductions_one() -> None:
    schedule = check(lambda *given: tuple(x.sum(-1) for x in given), *tensors(3, 5, 300))
    assert len(launches(schedule)) == 3


@pytest.mark.parametrize("bound", ["NEAR", "EARLY_BYTES"])
def test_plan_brings_no_large_result_forward(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, bound, 0)
    small, large = tensors(2, 8), tensors(2, 200, 200)

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.exp(), c.exp(), d.exp(), b.exp()

    found = sorted(launch.kernel.name for launch in launches(check(f, *small, *large)))
    assert found == ["kernel_0_x2", "kernel_1", "kernel_1"]


def test_plan_frees_nothing_before_what_is_one_with_its_reader() -> None:
    def f(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = [x @ x for x in given]
        return tuple((x * 2 + 1).sum() for x in [m.tanh() @ m for m in made])

    schedule = planned(traced(f, *tensors(3, 6, 6)))
    freed = set[str]()
    for step in schedule.steps:
        if isinstance(step, Launch):
            assert not freed & set(step.arguments)
        if isinstance(step, Free):
            freed.update(step.names)


def test_reuse_gives_a_result_no_memory_of_another_set() -> None:
    """Each sum dies with two operands of its shape, of which it can take one; the other is no other sum's."""
    total = store("c", i, call("add", load("a", i), load("b", i)))
    kernel = ir.make_run(loops(i=6), [total], {name: torch.zeros(6) for name in "abc"}, {}).kernel
    sets = [tuple(f"{name}{number}" for name in "abc") for number in range(3)]
    launch = batched_launches.together([Launch(kernel, names, (), ()) for names in sets])
    made = [Allocate(name, (Int(6),), (Int(1),), torch.float32, CPU) for names in sets for name in names]
    found = reuse((*made, launch), frozenset(), frozenset(name for names in sets for name in names))
    assert {step.name: step.of for step in found if isinstance(step, Reuse)} == {"c0": "a0", "c1": "a1", "c2": "a2"}


def pair() -> ir.Run:
    x, y = tensors(2, 12)
    stores = [store("a", i, call("neg", load("x", i))), store("b", i, call("add", load("y", i), const(1)))]
    return ir.make_run(loops(i=12), stores, {"x": x, "y": y}, {"a": -x, "b": y + 1})


def test_dependence_proves_nothing_of_buffers_that_share_no_store() -> None:
    kernel = pair().kernel
    assert may_overwrite(kernel, "x", "a") and may_overwrite(kernel, "y", "b")
    assert not may_overwrite(kernel, "x", "b") and not may_overwrite(kernel, "y", "a")


def test_apart_renames_buffers_alone() -> None:
    kernel = pair().kernel
    names = {name: f"{name}_" for name in ("x", "y", "a", "b")}
    back = {new: old for old, new in names.items()}
    renamed = with_buffers(kernel, names)
    assert [buffer.name for buffer in renamed.buffers] == [f"{buffer.name}_" for buffer in kernel.buffers]
    assert with_buffers(renamed, back) == kernel


def test_kernels_over_sets_compute_what_each_does_in_cpp(tmp_path: Path) -> None:
    run: Any = pair()
    both = ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)
    for name, expected in run.expected.items():
        torch.testing.assert_close(both[name], expected)
