"""A kernel writes what an input holds after the call over the input, where nothing can tell; else it is copied back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from assay.compiler import pipeline
from assay.compiler.ir.loops.kernel import Launch, Reuse, Schedule
from assay.compiler.runtime.call import write_back
from assay.compiler.schedule.order import plan

Program = Callable[..., object]


@pytest.fixture
def schedules(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Schedule]]:
    """The schedules that are made while a test runs."""
    found: list[Schedule] = []

    def kept(*args: object) -> Schedule:
        found.append(plan(*args))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(pipeline, "plan", kept)
    yield found


def momentum(p: Tensor, g: Tensor, m: Tensor) -> None:
    m.mul_(0.9).add_(g)
    p.sub_(m * 0.1)


def counted(p: Tensor, g: Tensor, m: Tensor) -> None:
    """The count is read by every iteration, so it is copied back."""
    m[0, 0].add_(1)
    p.sub_(g * m[0, 0])


def counted_apart(p: Tensor, g: Tensor, m: Tensor, t: Tensor) -> None:
    """As an optimizer counts its steps: what reads the count comes before it is written over the one before."""
    t.add_(1)
    m.lerp_(g, 0.1)
    p.sub_(m / (1 - 0.9**t))


def old_value_returned(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    old = p.clone()
    p.mul_(g)
    return old


def new_value_returned(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    p.mul_(g)
    return p + 0


def input_returned(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    p.mul_(g)
    return p


def view_returned(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    part = p[1:]
    p.mul_(g)
    return part, part.sum()


def moved(p: Tensor, g: Tensor, m: Tensor) -> None:
    """An element goes where another one was."""
    p.copy_(p.flip(0) + g)


def reduced(p: Tensor, g: Tensor, m: Tensor) -> None:
    p.sub_(p.mean(1, keepdim=True))


def swapped(p: Tensor, g: Tensor, m: Tensor) -> None:
    old = p * 1
    p.copy_(m * 2)
    m.copy_(old + g)


def read_twice(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    p.add_(g)
    return p.sum(0) + m.amax(0)


def laid_otherwise(p: Tensor, g: Tensor, m: Tensor) -> None:
    m.copy_((p.t() + g.t()).t().contiguous() + m)


PROGRAMS: dict[str, Program] = {
    f.__name__: f
    for f in (
        *(momentum, counted, old_value_returned, new_value_returned, input_returned, view_returned, moved, reduced),
        *(swapped, read_twice, laid_otherwise),
    )
}


def inputs(layout: str) -> list[Tensor]:
    made = [torch.randn(9, 17, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    if layout == "transposed":
        return [each.t().contiguous().t() for each in made]
    return [torch.cat([torch.zeros(1, 17), each])[1:] for each in made] if layout == "offset" else made


def leaves(results: object) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("layout", ["plain", "transposed", "offset"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_and_results_are_eagers(name: str, layout: str) -> None:
    compiled = torch.compile(PROGRAMS[name], backend="assay", options={"fallback": "error"})
    mine, theirs = inputs(layout), inputs(layout)
    for _ in range(3):
        ours, eager = leaves(compiled(*mine)), leaves(PROGRAMS[name](*theirs))
        for one, other in zip((*ours, *mine), (*eager, *theirs), strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other)
        grown = [[each._version > 0 for each in tensors] for tensors in (mine, theirs)]
        assert grown[0] == grown[1]
        places = [
            [one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for one in out for other in given]
            for out, given in ((ours, mine), (eager, theirs))
        ]
        assert places[0] == places[1]


@pytest.mark.parametrize(("name", "count"), [("momentum", 2), ("moved", 0), ("reduced", 0), ("swapped", 2)])
def test_inputs_are_overwritten_where_that_is_proven(name: str, count: int, schedules: list[Schedule]) -> None:
    torch.compile(PROGRAMS[name], backend="assay", options={"warm": False})(*inputs("plain"))
    over = [step for schedule in schedules for step in schedule.steps if isinstance(step, Reuse)]
    assert len([step for step in over if step.of in schedules[0].inputs]) == count, schedules


def test_a_counter_is_written_over_the_one_before(schedules: list[Schedule]) -> None:
    compiled = torch.compile(counted_apart, backend="assay", options={"warm": False, "fallback": "error"})
    mine, theirs = ([*inputs("plain"), torch.zeros(())] for _ in range(2))
    for number in range(3):
        compiled(*mine)
        counted_apart(*theirs)
        assert mine[3].item() == number + 1
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)
            assert one._version == other._version
    (schedule,) = schedules
    over = [step.of for step in schedule.steps if isinstance(step, Reuse)]
    assert {name for name in over if name in schedule.inputs} and len(over) == 3, schedule
    launches = [step for step in schedule.steps if isinstance(step, Launch)]
    assert len(launches) == 2 and not launches[-1].kernel.loops


def test_a_sum_that_an_input_holds_after_the_call_is_computed_once(schedules: list[Schedule]) -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        t.copy_(x.sum())
        return x / t

    x, t = torch.rand(40), torch.zeros(())
    torch.testing.assert_close(torch.compile(program, backend="assay", options={"warm": False})(x, t), x / x.sum())
    torch.testing.assert_close(t, x.sum())
    assert sum(str(step).count("Reduce(") > 0 for step in schedules[0].steps) == 1


def test_an_input_keeps_its_value_where_a_later_step_raises() -> None:
    """The factorization raises after the kernel that has the new value."""

    def program(p: Tensor, at: Tensor) -> Tensor:
        p.mul_(2)
        return torch.linalg.cholesky(p[at])

    p, at = torch.eye(3).neg(), torch.arange(3)
    compiled = torch.compile(program, backend="assay", options={"fallback": "error"})
    with pytest.raises(RuntimeError):
        compiled(p, at)
    assert p[0, 0] in (-1.0, -2.0)


def test_inputs_that_overlap_are_eagers() -> None:
    compiled = torch.compile(momentum, backend="assay")
    compiled(*inputs("plain"))
    mine, theirs = torch.arange(40.0), torch.arange(40.0)
    for memory, function in ((mine, compiled), (theirs, momentum)):
        function(memory[:20].view(4, 5), memory[20:].view(4, 5), memory[20:].view(4, 5))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_a_step_over_many_small_tensors(kind: type[torch.optim.Optimizer], schedules: list[Schedule]) -> None:
    """One launch a tensor, and parameters and moments written where they are."""
    given = {"lr": 0.01, "foreach": True} | ({"momentum": 0.9} if kind is torch.optim.SGD else {})
    ours, theirs = ([torch.nn.Parameter(torch.linspace(-1, 1, 8 + k % 3)) for k in range(12)] for _ in range(2))
    steps = [kind(parameters, **given) for parameters in (ours, theirs)]  # type: ignore[call-arg]
    torch._dynamo.reset()
    compiled = torch.compile(steps[0].step, backend="assay", options={"warm": False})
    for round_ in range(3):
        for parameters, step in ((ours, compiled), (theirs, steps[1].step)):
            for number, parameter in enumerate(parameters):
                parameter.grad = torch.full_like(parameter, 0.1 * number - round_)
            step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)
            assert (one._version > 0) == (other._version > 0)
    last = schedules[-1]
    over = [step for step in last.steps if isinstance(step, Reuse) and step.of in last.inputs]
    assert len(over) >= 12


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each call copies back."""
    found: list[int] = []
    copy = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, of: (found.append(len(to)), copy(to, of)))
    return found


def test_what_is_copied_back_is_so_in_one_call(copies: list[int]) -> None:
    """On a GPU each call is a launch; what a kernel wrote over its input is there already."""
    kept = [torch.zeros(2) for _ in range(3)]
    write_back(kept, [torch.ones(2), kept[1], torch.full((2,), 2.0)], (1, 2, 3))
    assert copies == [2] and [each[0].item() for each in kept] == [1.0, 0.0, 2.0]
    assert [each._version for each in kept] == [1, 2, 3]
    write_back(kept, list(kept), (0, 1, 2))
    write_back(kept[:1], kept[:1], (2,))
    write_back(kept, list(kept), (0, 0, 0))
    assert copies == [2] and [each._version for each in kept] == [3, 3, 5]


def test_what_is_copied_back_of_several_dtypes_is_so_in_a_call_for_each(copies: list[int]) -> None:
    """Of several together torch copies one by one."""
    dtypes = [torch.float32, torch.int64, torch.float32, torch.float32, torch.int64]
    kept = [torch.zeros(2, dtype=dtype) for dtype in dtypes]
    write_back(kept, [torch.full((2,), number, dtype=dtype) for number, dtype in enumerate(dtypes)], (1,) * 5)
    assert copies == [3, 2] and [each[0].item() for each in kept] == [0, 1, 2, 3, 4]
    assert [each._version for each in kept] == [1] * 5


@pytest.mark.parametrize("is_training", [True, False])
def test_running_statistics_are_copied_back_in_a_call_for_each_dtype(copies: list[int], is_training: bool) -> None:
    """With gradients too; those of batch norms grow no version, their counts do."""
    torch.manual_seed(0)  # the slopes of sums of squares of normalized numbers are rounding, and now and then more
    ours, theirs = (torch.nn.Sequential(*(torch.nn.BatchNorm2d(4) for _ in range(3))) for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="assay", options={"warm": False})
    for number in range(3):
        x = torch.randn(2, 4, 3, 3) + number
        copies.clear()
        for net, call in ((ours, compiled), (theirs, theirs)):
            with torch.set_grad_enabled(is_training):
                result = call(x)
            if is_training:
                net.zero_grad()
                result.square().sum().backward()
        for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(one, other)
            assert one._version == other._version and not one.requires_grad
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        assert copies == ([6, 3] if is_training else [])


def test_an_optimizer_copies_nothing_back(copies: list[int]) -> None:
    def stepped(backend: str) -> tuple[list[Tensor], list[int]]:
        torch._dynamo.reset()
        generator = torch.Generator().manual_seed(1)
        params = [torch.randn(5, generator=generator).requires_grad_() for _ in range(3)]
        for p in params:
            p.grad = torch.randn(5, generator=generator)
        optimizer = torch.optim.Adam(params, foreach=True, capturable=True)
        options = {"fallback": "error"} if backend == "assay" else None  # eager would copy nothing back either
        step = torch.compile(optimizer.step, backend=backend, options=options)
        versions = [p._version for p in params]
        for _ in range(3):
            step()
        return [p.detach() for p in params], [p._version - v for p, v in zip(params, versions, strict=True)]

    (got, grown), (expected, grown_in_eager) = stepped("assay"), stepped("eager")
    assert copies == []
    assert grown == grown_in_eager
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
