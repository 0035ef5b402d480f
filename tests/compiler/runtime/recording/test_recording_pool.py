"""Recordings that share a pool of memory: whatever is called in whatever order, and held however long, is as in eager.

On the CPU, with tapes that stand for CUDA graphs and an arena that gives what was freed to who asks (`tests.taped`).
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.compiler.ir.graph.roles import Buffer, GraphCall, UserInput, UserOutput
from assay.compiler.journal import reset, totals
from assay.compiler.runtime.recording import cuda_graphs
from assay.compiler.runtime.recording.cuda_graphs import MOST_CLASHES, MOST_MISSES, Replayed
from assay.compiler.runtime.recording.pool_layout import Event
from assay.compiler.runtime.recording.recording import (
    Held,
    Holding,
    Pool,
    _is_within,
    free_bytes,
    pool_of,
    recorded_bytes,
)
from tests.taped import ALIGNED, EARLY, LATE, Arena, SideBySide, Step, Tape, made, plain, recordable, replays


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Tape.made.clear()
    gc.collect()
    reset()
    yield
    Tape.made.clear()
    gc.collect()


def pools() -> set[Pool]:
    return {tape.pool for tape in Tape.made}


def arena_bytes() -> int:
    """The memory of all pools."""
    return sum(last - first for pool in pools() for first, last in pool.memory.segments)


def double() -> Replayed:
    return made(lambda x: (x * 2,), [UserInput(0)])


def called(graph: Replayed, number: float, size: int = 4) -> Tensor:
    """A call's result, which is right when it is handed out."""
    (result,) = graph([torch.full((size,), float(number))])
    assert torch.equal(result, torch.full((size,), 2.0 * number))
    return result  # type: ignore[no-any-return]


# ---- what is overwritten ---------------------------------------------------------------------------------------------


def test_a_result_that_lies_where_an_earlier_recording_works_is_kept() -> None:
    first, second = double(), double()
    for graph in (first, second):
        for number in range(3):
            called(graph, number)
    ours, theirs = Tape.made
    at = held_place(second)
    assert ours.pool is theirs.pool and _is_within(sorted([*ours.early, *ours.late]), at)
    result = called(second, 5)
    for number in range(2 * MOST_MISSES):
        called(first, number)
        assert torch.equal(result, torch.full((4,), 10.0)), at


def held_place(graph: Replayed) -> tuple[int, int]:
    (state,) = graph.sizes.values()
    assert state.last.recording is not None
    return state.last.recording.holding.held[0].place


def test_what_is_held_over_another_recording_is_copied_out_from_then_on() -> None:
    first, second = double(), double()
    kept: Sequence[Tensor] = ()
    for number in range(12):
        called(first, number)
        kept = [called(second, number)]
    assert totals()["apart"] == 0 and len(pools()) == 1 and len(kept) == 1
    before = replays()
    for number in range(4):
        called(first, number)
        kept = [called(second, number)]
    assert replays() - before == 8


def test_a_result_that_is_held_for_ever_puts_the_other_recording_into_a_pool_of_its_own() -> None:
    first, second = double(), double()
    for graph in (first, second):
        for number in range(3):
            called(graph, number)
    result = called(second, 5)
    for number in range(MOST_MISSES + 1):
        called(first, number)
    assert totals()["apart"] == 1 and len(pools()) == 2
    before = replays()
    for number in range(4):
        called(first, number)
    assert replays() - before == 4 and torch.equal(result, torch.full((4,), 10.0))


def trained(step: Step, w: Tensor, x: Tensor) -> None:
    w.grad = None
    step(w, x).sum().backward()
    assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]


def test_what_a_forward_saved_is_kept_while_others_run() -> None:
    """Forward, another recording, made in the memory that the backward frees, backward."""
    step, graph, w = Step(), double(), torch.randn(4, requires_grad=True)
    for _ in range(4):
        trained(step, w, torch.randn(4))
    for number in range(3):
        called(graph, number)
    assert len(pools()) == 1 and step.sharing == 1
    for number in range(8):
        x = torch.randn(4)
        w.grad = None
        result = step(w, x)
        called(graph, number)
        result.sum().backward()
        assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]


def test_what_lies_side_by_side_is_lent_together() -> None:
    """A block goes to backward as a whole, and is the pool's when all its parts are gone."""
    step, w = SideBySide(), torch.randn(4, requires_grad=True)
    for _ in range(8):
        trained(step, w, torch.randn(4))
    forward, backward = Tape.made
    (place,) = forward.lent
    assert place[1] - place[0] == 4 * w.nbytes and backward.pool is forward.pool
    before = replays()
    for _ in range(3):
        trained(step, w, torch.randn(4))
    assert replays() == before + 6
    recording = next(iter(step.backward.sizes.values())).last.recording
    assert recording is not None
    ((_, positions),) = recording.borrowed.values()
    assert positions == (0, 1, 2)


def test_one_of_those_that_lie_side_by_side_is_held_over_the_backward() -> None:
    """Then the others are not overwritten either, by this backward or the next forward."""
    step, w = SideBySide(), torch.randn(4, requires_grad=True)
    for _ in range(6):
        trained(step, w, torch.randn(4))
    kept: list[Tensor] = []
    for which in (0, 1, 2):
        x, w.grad = torch.randn(4), None
        before = replays()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda value: (kept.append(value), value)[1], lambda value: value
        ):
            result = step(w, x)
        assert replays() == before + 1
        held = kept[which]
        kept.clear()
        expected = held.clone()
        result.sum().backward()
        assert torch.equal(w.grad, (w * x).cos() * x) and torch.equal(held, expected)  # type: ignore[arg-type]
        trained(step, w, torch.randn(4))
        assert torch.equal(held, expected)
        del held, result
        for _ in range(2):
            trained(step, w, torch.randn(4))


def test_a_second_backward_of_what_was_lent_is_recorded_apart() -> None:
    """What it reads may be taken by any recording of the pool, the second one's own included."""
    step, w = Step(), torch.randn(4, requires_grad=True)
    for _ in range(4):
        trained(step, w, torch.randn(4))
    other = Step()
    step.backward, before = other.backward, step.backward
    for _ in range(6):
        trained(step, w, torch.randn(4))
    assert len(pools()) == 2 and before.sizes and totals()["apart"] == 0
    step.backward = before
    trained(step, w, torch.randn(4))


def test_a_recording_is_dropped_while_its_results_are_held() -> None:
    first, second = double(), double()
    for graph in (first, second):
        for number in range(3):
            called(graph, number)
    result = called(second, 5)
    second.sizes.clear()
    Tape.made.clear()
    gc.collect()
    for number in range(2 * MOST_MISSES):
        called(first, number)
        assert torch.equal(result, torch.full((4,), 10.0))
    third = double()
    for number in range(4):
        called(third, number)
        assert torch.equal(result, torch.full((4,), 10.0))


def test_what_was_lent_is_kept_when_its_recordings_are_dropped() -> None:
    step, w, x = Step(), torch.randn(4, requires_grad=True), torch.randn(4)
    keeper = double()
    for number in range(3):
        called(keeper, number)
    for _ in range(6):
        trained(step, w, torch.randn(4))
    result = step(w, x)
    step.forward.sizes.clear()
    step.backward.sizes.clear()
    for number in range(8):  # which are recorded where the saved values lie
        called(double(), number)
        graph = double()
        for again in range(3):
            called(graph, again)
        del graph
    w.grad = None
    result.sum().backward()
    assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]


def test_recording_fails_after_what_was_saved_was_lent() -> None:
    class Refusing(Tape):
        def record(self, run: GraphCall, inputs: list[Any], events: Sequence[Event]) -> Sequence[Any]:
            super().record(run, inputs, events)
            raise RuntimeError("operation not permitted when stream is capturing")

    step, w = Step(), torch.randn(4, requires_grad=True)
    step.backward.tape = Refusing
    for _ in range(5):
        trained(step, w, torch.randn(4))
    assert step.backward.reason and step.sharing == 1
    for number in range(6):
        x = torch.randn(4)
        w.grad = None
        result = step(w, x)
        graph = double()
        for again in range(3):
            called(graph, again + number)
        result.sum().backward()
        assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]


def test_a_closed_pool_is_not_recorded_in() -> None:
    first, second = double(), double()
    for number in range(3):
        called(first, number)
    (pool,) = pools()
    pool.is_closed = True
    for number in range(3):
        called(second, number)
        called(first, number)
    assert len(pools()) == 2 and pool_of(0, 0) is not pool


ORDERS = [
    "infer",
    "infer and keep",
    "train",
    "add up",
    "forward",
    "first backward",
    "last backward",
    "backward and retain",
    "keep the gradient",
    "chain",
    "drop results",
    "drop graphs",
    "move",
    "drop recordings",
]
CALLS = st.tuples(st.sampled_from(ORDERS), st.integers(0, 1), st.integers(1, 3))


class Program:
    """Two trained functions and two that are not, each for three sizes, all in one pool, beside eager."""

    def __init__(self, kind: type[Step]) -> None:
        self.kind = kind
        self.steps = [kind(is_symbolic=True) for _ in range(2)]
        self.graphs = [self._graph() for _ in range(2)]
        self.weights = {(which, size): self._weight(size) for which in range(2) for size in range(1, 4)}
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    @staticmethod
    def _graph() -> Replayed:
        return made(lambda w, x: (w * x + 1, x - w), [Buffer(0, "w"), UserInput(1)], 2, is_symbolic=True)

    @staticmethod
    def _weight(size: int) -> Tensor:
        return torch.randn(4 * size, requires_grad=True)

    def keep(self, value: Tensor) -> None:
        self.kept.append((value, value.detach().clone()))

    def backward(self, w: Tensor, x: Tensor, result: Tensor, **kwargs: Any) -> None:
        before = 0 if w.grad is None else w.grad.clone()
        result.sum().backward(**kwargs)
        expected = (w * x).cos().detach() * x
        assert w.grad is not None and torch.equal(w.grad, before + expected)

    def do(self, what: str, which: int, size: int) -> None:
        w, x = self.weights[which, size], torch.randn(4 * size)
        if what.startswith("infer"):
            sums, differences = self.graphs[which]([w.detach(), x])
            assert torch.equal(sums, w * x + 1) and torch.equal(differences, x - w)
            if what == "infer and keep":
                self.keep(sums)
        elif what in ("train", "add up", "keep the gradient", "forward"):
            result = self.steps[which](w, x)
            assert torch.equal(result, (w * x).sin())
            if what == "forward":
                self.waiting.append((w, x, result))
                return
            if what != "add up":
                w.grad = None
            self.backward(w, x, result)
            if what == "keep the gradient":
                self.keep(w.grad)  # type: ignore[arg-type]
                w.grad = None
        elif "backward" in what and self.waiting:
            w, x, result = self.waiting[0 if what == "first backward" else -1]
            self.backward(w, x, result, retain_graph=what == "backward and retain")
            if what != "backward and retain":
                self.waiting = [each for each in self.waiting if each[2] is not result]
        elif what == "chain":
            self.chain(size)
        elif what == "drop results":
            self.kept.clear()
        elif what == "drop graphs":
            self.waiting.clear()
        elif what == "move":
            self.weights[which, size] = self._weight(size)
        elif what == "drop recordings":
            self.steps[which], self.graphs[which] = self.kind(is_symbolic=True), self._graph()

    def chain(self, size: int) -> None:
        """A model with a graph break."""
        ws, x = [self.weights[which, size] for which in range(2)], torch.randn(4 * size)
        before = [w.grad for w in ws]
        for w in ws:
            w.grad = None
        result = self.steps[1](ws[1], self.steps[0](ws[0], x))
        gradients = torch.autograd.grad(result.sum(), ws)
        expected = torch.autograd.grad((ws[1] * (ws[0] * x).sin()).sin().sum(), ws)
        assert all(map(torch.allclose, gradients, expected))
        for w, gradient in zip(ws, before, strict=True):
            w.grad = gradient

    def check(self) -> None:
        for value, expected in self.kept:
            assert torch.equal(value, expected)
        for w, x, result in self.waiting:
            assert torch.equal(result, (w * x).sin())


@settings(max_examples=400, deadline=None)
@given(st.lists(CALLS, min_size=20, max_size=60), st.sampled_from([Step, SideBySide]))
def test_calls_in_any_order_are_as_in_eager(calls: list[tuple[str, int, int]], kind: type[Step]) -> None:
    Tape.made.clear()
    program = Program(kind)
    for what, which, size in calls:
        program.do(what, which, size)
        program.check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=12), st.integers(0, 90), st.integers(1, 9))
def test_a_place_lies_in_segments(gaps: list[tuple[int, int]], first: int, size: int) -> None:
    segments, end = list[tuple[int, int]](), 0
    for gap, length in gaps:
        segments.append((end + gap, end + gap + length))
        end += gap + length
    taken = {address for begin, last in segments for address in range(begin, last)}
    assert _is_within(segments, (first, first + size)) == any(
        address in taken for address in range(first, first + size)
    )


# ---- how much memory -------------------------------------------------------------------------------------------------


def test_memory_for_many_sizes_grows_by_results() -> None:
    """The largest first: no smaller blocks, side by side or not, make one that is large enough."""
    graph = made(lambda x: (x * 2,), [UserInput(0)], is_symbolic=True)
    sizes = [64 * k for k in range(7, 0, -1)]
    for size in sizes:
        for number in range(3):
            called(graph, number, size)
    results, temporaries = (share * 4 * sum(sizes) for share in (1, sum(EARLY) + sum(LATE)))
    assert len(Tape.made) == 7 and len(pools()) == 1
    assert arena_bytes() < results + 0.5 * temporaries


def test_a_loop_over_sizes_and_a_graph_break_is_replayed_in_one_pool() -> None:
    """Training in which nothing is held over a step; what is saved for one size lies where that of others lay."""
    first, second = Step(is_symbolic=True), Step(is_symbolic=True)
    ws = {size: [torch.randn(64 * size, requires_grad=True) for _ in range(2)] for size in (3, 2, 1)}

    def step(size: int) -> None:
        one, two = ws[size]
        x = torch.randn(64 * size)
        second(two, first(one, x)).sum().backward()
        expected = torch.autograd.grad((two * (one * x).sin()).sin().sum(), (one, two))
        assert all(map(torch.allclose, (one.grad, two.grad), expected))
        one.grad = two.grad = None

    for _ in range(6):
        step(3)
    largest = arena_bytes()
    for _ in range(6):
        for size in ws:
            step(size)
    assert totals()["recorded"] == 12 and totals()["apart"] == 0 and len(pools()) == 1
    before = replays()
    for size in ws:
        step(size)
    assert replays() - before == 12
    assert arena_bytes() < 2 * largest


def test_a_pool_goes_with_its_last_recording() -> None:
    graphs = [double(), double()]
    for graph in graphs:
        for number in range(3):
            called(graph, number)
    (pool,) = pools()
    pool.taken_bytes = 100
    assert recorded_bytes(0) == 100 and recorded_bytes(1) == 0 and free_bytes(0) == 100 - 2 * 16
    there, arena = weakref.ref(pool), weakref.ref(pool.memory)
    del pool
    Tape.made.clear()
    graphs.pop()
    gc.collect()
    assert there() is not None
    del graph
    graphs.clear()
    gc.collect()
    assert there() is None and arena() is None and recorded_bytes(0) == 0


def test_what_may_take_too_much_without_being_asked_for_has_a_pool_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that all of it is given back if it did."""
    monkeypatch.setattr(cuda_graphs, "_memory_of", lambda device: 1 << 30)
    monkeypatch.setattr(cuda_graphs, "TIMED_CALLS", 0)
    kept = [0, 200 << 20, 0]
    for graph, free in zip((double(), double(), double()), kept, strict=True):
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device, free=free: free)
        graph.wanted = False
        for number in range(3):
            called(graph, number)
    first, second, third = (tape.pool for tape in Tape.made)
    assert first is third is not second and totals()["recorded"] == 3


def test_a_pool_of_what_was_lent_goes_too() -> None:
    step, w = Step(), torch.randn(4, requires_grad=True)
    for _ in range(6):
        trained(step, w, torch.randn(4))
    (pool,) = pools()
    assert step.sharing == 1
    there = weakref.ref(pool)
    del pool, step
    Tape.made.clear()
    w.grad = None
    gc.collect()
    assert there() is None


def test_the_memory_of_results_that_are_dropped_is_used_again() -> None:
    keeper = double()
    for number in range(3):
        called(keeper, number)
    sizes = []
    for _ in range(8):
        graph = double()
        for number in range(3):
            called(graph, number)
        sizes.append(arena_bytes())
        del graph
        Tape.made.clear()
        Tape.made.append(kept_tape(keeper))
        gc.collect()
    assert sizes[-1] == sizes[2] > 0
    assert len(pool_of(0, 0).holdings) <= 3


def kept_tape(graph: Replayed, size: int = 0) -> Any:
    state = list(graph.sizes.values())[size]
    assert state.last.recording is not None
    return state.last.recording.tape


# ---- streams, devices, threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[(0, 1), (0, 2)], [(0, 1), (1, 1)]])
def test_each_stream_and_each_device_has_a_pool(places: list[tuple[int, int]]) -> None:
    graphs = [
        Replayed(plain(lambda x: (x * 2,)), recordable([UserInput(0)], [UserOutput(0)]), device, wanted=True, tape=Tape,
                 here=lambda device, stream=stream: stream)  # type: ignore[misc]
        for device, stream in places
    ]  # fmt: skip
    kept = []
    for number in range(4):
        kept.append([called(graph, number) for graph in graphs])
        assert all(torch.equal(result, torch.full((4,), 2.0 * k)) for k, pair in enumerate(kept) for result in pair)
    assert len(pools()) == 2


def test_sizes_that_are_recorded_for_several_streams_are_replayed_there() -> None:
    here = [0]
    graph = Replayed(
        plain(lambda x: (x * 2,)), recordable([UserInput(0)], [UserOutput(0)], is_symbolic=True), 0,
        wanted=True, tape=Tape, here=lambda device: here[0],
    )  # fmt: skip
    for stream in (1, 2):
        here[0] = stream
        for number in range(3):
            called(graph, number, 4 * stream)
    before = replays()
    for stream in (1, 2):
        here[0] = stream
        for size in (4, 8):
            called(graph, 3, size)
    assert replays() - before == 2 and len(pools()) == 2


def test_a_backward_on_another_stream_does_not_lie_in_the_pool_of_its_forward() -> None:
    here = [0]
    step, w = Step(), torch.randn(4, requires_grad=True)
    step.backward.here = lambda device: 1
    step.forward.here = lambda device: here[0]
    for _ in range(6):
        trained(step, w, torch.randn(4))
    assert len(pools()) == 2 and step.sharing == 0


def test_threads_hold_results_of_several_graphs_of_one_pool() -> None:
    graphs = [double() for _ in range(3)]
    for graph in graphs:
        for number in range(3):
            called(graph, number)
    assert len(pools()) == 1
    wrong: list[float] = []

    def calls(start: int) -> None:
        held: list[tuple[float, Tensor]] = []
        for number in range(start, start + 300):
            (result,) = graphs[number % 3]([torch.full((4,), float(number))])
            held = [*held[-(number % 3) :], (number, result)]
            wrong.extend(k for k, value in held if not torch.equal(value, torch.full((4,), 2.0 * k)))

    threads = [threading.Thread(target=calls, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and replays() > 0


def test_a_graph_that_is_called_while_another_thread_replays_one_of_its_pool_runs_plainly() -> None:
    """Else it could hand out a result after it was found that nobody holds it."""
    seen: list[int] = []

    class Watching(Tape):
        def replay(self) -> None:
            before = kept_tape(second).replays
            thread = threading.Thread(target=called, args=(second, 7))
            thread.start()
            thread.join()
            seen.append(kept_tape(second).replays - before)
            super().replay()

    first, second = double(), double()
    for number in range(3):
        called(second, number)
    first.tape = Watching
    for number in range(4):
        called(first, number)
    assert seen == [0, 0, 0]


# ---- the parts -------------------------------------------------------------------------------------------------------


def test_a_result_outlives_its_recording_as_long_as_it_is_held() -> None:
    value = torch.ones(4)
    held = Held.of(value, True, False)
    del value
    held.count()
    assert not held.is_alive()
    handed = held.handed()
    held.leave()
    assert held.is_alive() and not held.is_alone_in([handed], [0])
    del handed
    assert not held.is_alive()


def test_results_that_are_not_in_the_way_may_be_held() -> None:
    values = [torch.ones(4), torch.ones(4)]
    first, second = (Held.of(value, True, False) for value in values)
    values.clear()
    first.count()
    second.count()
    holding = Holding([first, second], yields=False, out=[first, second])
    result = second.handed()
    assert not holding.is_in_the_way({first}) and holding.out == [second] and holding.clashes == 0
    assert holding.is_in_the_way({second}) and holding.is_in_the_way({first, second}) and holding.clashes == 2
    del result
    assert not holding.is_in_the_way({first, second}) and not holding.out


def test_an_arena_gives_what_was_freed() -> None:
    arena = Arena()
    first = arena.storage(40)
    place = first.data_ptr()
    assert arena.storage(40).data_ptr() != place
    del first
    assert place % ALIGNED == 0 and arena.storage(48).data_ptr() == place


def test_backwards_whose_gradients_are_held_over_forward_share_a_pool() -> None:
    first, second = (Step(is_symbolic=True) for _ in range(2))
    ws = {size: [torch.randn(size, requires_grad=True) for _ in range(2)] for size in (8, 4)}
    for number in range(24):
        one, two = ws[4 if number % 4 == 3 else 8]
        x, before = torch.randn(one.shape), replays()
        result = second(two, first(one, x))  # while the last gradients are held
        for w in (*ws[4], *ws[8]):
            w.grad = None
        result.sum().backward()
        expected = torch.autograd.grad((two * (one * x).sin()).sin().sum(), (one, two))
        assert all(torch.equal(w.grad, other) for w, other in zip((one, two), expected, strict=True))  # type: ignore
        assert number < 16 or replays() - before == 4
    backwards = {kept_tape(step.backward, size).pool for step in (first, second) for size in range(2)}
    forwards = {kept_tape(step.forward, size).pool for step in (first, second) for size in range(2)}
    assert len(forwards) == len(backwards) == 1 and forwards != backwards and totals()["apart"] == 4


def test_gradients_that_are_held_over_forward_put_only_the_backward_apart() -> None:
    step, w = Step(), torch.randn(4, requires_grad=True)
    for _ in range(12):
        x = torch.randn(4)
        result = step(w, x)  # while the last gradient is held
        w.grad = None
        result.sum().backward()
        assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]
    forward, backward = (sizes.last for each in (step.forward, step.backward) for sizes in each.sizes.values())
    assert MOST_CLASHES == 2 and (forward.apart, backward.apart) == (0, 1) and totals()["apart"] == 1
