"""Recordings of CUDA graphs: who owns what a replay overwrites.

On the CPU, with tapes that stand for CUDA graphs (`tests.taped`).
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.capture.functionalize import capture
from assay.compiler.entry.graph_as_call import as_call
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.roles import (
    Buffer,
    Gradient,
    GraphCall,
    Parameter,
    Program,
    Saved,
    Signature,
    Tangent,
    UserInput,
    UserOutput,
)
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Allocate, Free, Reinterpret
from assay.compiler.ir.loops.live_memory import Change
from assay.compiler.journal import reset, totals
from assay.compiler.options import Options
from assay.compiler.runtime.recording import cuda_graphs
from assay.compiler.runtime.recording.cuda_graphs import (
    MOST_MISSES,
    MOST_RECORDINGS,
    MOST_SIZES,
    Replayed,
    reason_against,
)
from assay.compiler.runtime.recording.pool_layout import Event, Freed, Returned, Taken
from assay.compiler.runtime.recording.recording import Pool, _events, record
from tests.stated_numbers import state
from tests.taped import WEIGHT, Step, Tape, made, plain, recordable, replays


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Tape.made.clear()
    gc.collect()
    reset()


def test_a_graph_is_replayed_from_its_second_call_on() -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    w = torch.randn(4)
    for _ in range(5):
        x = torch.randn(4)
        assert torch.equal(graph([w, x])[0], w * x)
    assert replays() == 4 and len(Tape.made) == 1 and totals()["recorded"] == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["call", "keep", "drop", "write", "view", "move"]), min_size=4, max_size=24))
def test_no_result_is_ever_overwritten(steps: list[str]) -> None:
    """Whatever is kept of results, alone or through a view, keeps its values; and all values are the plain ones."""
    Tape.made.clear()
    graph = made(lambda w, x: (w * x, w + x), [WEIGHT, UserInput(1)], 2)
    w, kept = torch.randn(3), list[tuple[Tensor, Tensor]]()
    last: Sequence[Tensor] = ()
    for number, step in enumerate(steps):
        x = torch.full((3,), float(number))
        if step == "call":
            last = ()
        if step == "move":
            w = torch.randn(3)
        results = graph([w, x])
        assert torch.equal(results[0], w * x) and torch.equal(results[1], w + x)
        if step == "keep":
            kept.append((results[0], results[0].clone()))
        if step == "view":
            kept.append((results[1][1:], results[1][1:].clone()))
        if step == "write":
            results[0].mul_(2)
            kept.append((results[0], results[0].clone()))
        if step == "drop":
            kept.clear()
        last = results if step == "keep" else ()
        del results
        for tensor, value in kept:
            assert torch.equal(tensor, value)
    del last


def test_a_result_that_is_held_is_copied_out_from_then_on() -> None:
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    last = graph([torch.zeros(2)])[0]
    for k in range(6):
        last = graph([torch.full((2,), float(k))])[0]
        assert last[0].item() == 2 * k
    assert replays() == 5 and len(Tape.made) == 1  # plainly: the first, and the one that found the second held
    held = [graph([torch.full((2,), float(k))])[0] for k in range(6)]
    assert [tensor[0].item() for tensor in held] == [0, 2, 4, 6, 8, 10]
    assert replays() == 11


def test_a_result_that_is_held_for_ever_gets_a_recording_that_copies_it() -> None:
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    held = [graph([torch.full((2,), float(k))])[0] for k in range(12)]
    assert [tensor[0].item() for tensor in held] == [2 * k for k in range(12)]
    assert len(Tape.made) == 2 and replays() == 1 + 12 - 2 - MOST_MISSES


def test_results_that_share_memory_are_not_copied_but_called_plainly() -> None:
    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y[1:]

    graph = made(pair, [UserInput(0)], 2)
    for k in range(4):
        whole, part = graph([torch.full((3,), float(k))])
        assert torch.equal(part, whole[1:]) and part._version == 0
        whole.add_(1)
        assert torch.equal(part, whole[1:]) and part._version == 1
        del whole, part
    assert replays() == 3
    kept = [graph([torch.full((3,), float(k))]) for k in range(3)]
    assert [whole[0].item() for whole, _ in kept] == [0, 2, 4]


def test_parameters_that_move_are_found() -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    x, lasting = torch.ones(2), [torch.randn(2)]
    for number in range(6 * (MOST_MISSES + 3)):
        lasting = [*lasting[-1:], torch.randn(64 * number + 2)[:2]]  # not where others lay
        assert torch.equal(graph([lasting[1], x])[0], lasting[1])
    assert len(Tape.made) <= 4 and replays() > 5  # recorded again, copying what moves


@pytest.mark.parametrize("role", [WEIGHT, Saved("w")], ids=["parameter", "saved"])
def test_parameters_whose_storages_are_filled_again_elsewhere_are_not_recorded(role: Any) -> None:
    graph = made(lambda w, x: (w * x,), [role, UserInput(1)])
    w, kept, x = torch.randn(1 << 16), [], torch.randn(1 << 16)
    size, places = w.untyped_storage().nbytes(), set()
    for step in range(12):
        places.add(w.data_ptr())
        assert torch.equal(graph([w, x])[0], w * x)
        w.untyped_storage().resize_(0)
        kept += [torch.empty(size, dtype=torch.uint8)] * (step % 3 == 2)
        w.untyped_storage().resize_(size)
        w.normal_()
    assert len(places) > 1
    assert graph.reason == cuda_graphs.REFILLED and not graph.sizes


def test_recordings_are_bounded() -> None:
    roles = [Parameter(k, f"w{k}") for k in range(2 * MOST_RECORDINGS)]
    graph = made(lambda *ws: (torch.stack(ws).sum(0),), roles)
    ws, kept = [torch.randn(2) for _ in roles], []
    for k in range(2 * MOST_RECORDINGS):
        for _ in range(MOST_MISSES + 1):
            kept.append(ws[k])
            ws[k] = torch.randn(2)
            assert torch.equal(graph(list(ws))[0], torch.stack(ws).sum(0))
    assert len(Tape.made) == MOST_RECORDINGS


def test_results_that_are_inputs_or_lie_in_them() -> None:
    def alike(w: Tensor, x: Tensor) -> tuple[Any, ...]:
        y = x + 1
        return w, w.t(), x, x[1:], y, y, None, 7

    graph = made(alike, [WEIGHT, UserInput(1)], 8)
    w = torch.randn(2, 3)
    for k in range(3):
        x = torch.full((4,), float(k))
        same_w, turned, same_x, part, y, again, none, seven = graph([w, x])
        assert same_w is w and same_x is x and again is y and none is None and seven == 7
        assert turned._base is w and torch.equal(turned, w.t())
        assert part._base is x and part.data_ptr() == x[1:].data_ptr()
        before = turned._version
        w.add_(1)
        assert turned._version == before + 1 and torch.equal(turned, w.t())
        del y, again


def test_a_result_that_is_a_view_of_what_nobody_gets_stays_one() -> None:
    graph = made(lambda x: ((x * 2).view(2, 2).t(),), [UserInput(0)])
    for _ in range(4):
        (result,) = graph([torch.arange(4.0)])
        assert result._base is not None and result._base.shape == (4,) and result.stride() == (1, 2)
        assert torch.equal(result, torch.tensor([[0.0, 4.0], [2.0, 6.0]]))
        del result
    assert replays() == 3


def test_a_gradient_that_is_a_view_of_what_nobody_gets_is_none() -> None:
    """Autograd asks for no view, and to make one takes longer."""
    roles = [Gradient(UserInput(0)), Gradient(UserInput(1)), Gradient(UserInput(2))]

    def backward(t: Tensor) -> tuple[Tensor, ...]:
        both = t * 2
        return (t + 1)[1:].view(1, 3), both[:2], both[2:]  # the last two lie in one storage

    graph = made(backward, [Tangent(UserOutput(0))], roles=roles)
    for k in range(4):
        t = torch.arange(4.0) + k
        results = list(graph([t]))
        for result, expected in zip(results, [(t + 1)[1:].view(1, 3), (t * 2)[:2], (t * 2)[2:]], strict=True):
            assert torch.equal(result, expected) and result._version == 0
        assert k == 0 or results[0]._base is None
        results[0].add_(1)
        del results, result
    assert replays() == 3


def test_what_forward_saved_lies_still_for_backward() -> None:
    forward = made(lambda x: (x.sum(), x * 2), [UserInput(0)], roles=[UserOutput(0), Saved("double")])
    out = UserOutput(0)
    backward = made(lambda s, t: (s * t,), [Saved("double"), Tangent(out)], roles=[Gradient(UserInput(0))])
    for k in range(6):
        x, tangent = torch.full((3,), float(k)), torch.tensor(3.0)
        total, saved = forward([x])
        (gradient,) = backward([saved, tangent])
        assert torch.equal(gradient, x * 6) and torch.equal(saved, x * 2)
        del total, saved, gradient
    ours, theirs = Tape.made
    assert ours.replays == 5 and theirs.replays == 4


def test_two_forwards_before_their_backwards() -> None:
    forward = made(lambda x: (x.sum(), x * 2), [UserInput(0)], roles=[UserOutput(0), Saved("double")])
    backward = made(lambda s, t: (s * t,), [Saved("double"), Tangent(UserOutput(0))], roles=[Gradient(UserInput(0))])
    one = torch.tensor(1.0)
    for k in range(8):
        first, second = (forward([torch.full((3,), float(k + j))]) for j in range(2))
        later, earlier = backward([second[1], one]), backward([first[1], one])
        assert later[0][0].item() == 2 * (k + 1) and earlier[0][0].item() == 2 * k
        del first, second, later, earlier
    assert Tape.made[0].replays >= 6 and replays() >= 10


def test_a_backward_that_runs_twice_over_what_was_saved() -> None:
    forward = made(lambda x: (x.sum(), x * 2), [UserInput(0)], roles=[UserOutput(0), Saved("double")])
    backward = made(lambda s, t: (s * t,), [Saved("double"), Tangent(UserOutput(0))], roles=[Gradient(UserInput(0))])
    for k in range(6):
        _, saved = forward([torch.full((3,), float(k))])
        for times in (1.0, 2.0):
            assert backward([saved, torch.tensor(times)])[0][0].item() == 2 * k * times
        del saved


@pytest.mark.parametrize(("most", "is_recorded"), [(32, True), (31, False)])
def test_what_forward_saved_in_one_storage_is_copied_if_that_is_little(
    monkeypatch: pytest.MonkeyPatch, most: int, is_recorded: bool
) -> None:
    """The storage counts once, in however many parts it is saved."""
    state(monkeypatch, replay_copied_bytes=most)
    saved = [Saved("a"), Saved("b")]
    backward = made(lambda a, b, t: (a * b * t,), [*saved, Tangent(UserOutput(0))], roles=[Gradient(UserInput(0))])
    for k in range(10):
        block = torch.full((8,), float(k))  # which lies elsewhere than the one before, as that is still there
        assert torch.equal(backward([block[:4].data, block[4:].data, torch.tensor(3.0)])[0], block[:4] ** 2 * 3)
    assert bool(Tape.made) == is_recorded


@pytest.mark.parametrize("size", [(2, 3), (0, 3), ()])
def test_layouts_of_inputs(size: tuple[int, ...]) -> None:
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    for _ in range(3):
        x = torch.randn(size)
        for value in (x, x.expand(4, *size)):
            fresh = made(lambda x: (x * 2,), [UserInput(0)])
            for _ in range(3):
                assert torch.equal(fresh([value])[0], value * 2)
        assert torch.equal(graph([x])[0], x * 2)


def test_an_input_that_overlaps_itself_is_not_recorded() -> None:
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    x = torch.randn(6).as_strided((4, 3), (1, 1))
    for _ in range(3):
        assert torch.equal(graph([x])[0], x * 2)
    assert graph.reason == "it cannot be recorded: an input overlaps itself"
    assert totals()["unrecorded"] == {graph.reason: 1}


def test_a_result_that_is_a_view_in_another_dtype_is_not_recorded() -> None:
    for function in (lambda x: (x.view(torch.int32),), lambda x: ((y := x * 2), y.view(torch.int32))):
        graph = made(function, [UserInput(0)], 2)
        x = torch.randn(3)
        for _ in range(3):
            assert torch.equal(graph([x])[-1], function(x)[-1])
        assert graph.reason == "it cannot be recorded: a result is a view in another dtype"


def test_inputs_and_results_that_are_conjugated_by_a_bit() -> None:
    graph = made(lambda x: (x.resolve_conj() + 1,), [UserInput(0)])
    lazy = made(lambda x: ((x + 1).conj(),), [UserInput(0)])
    for number in range(6):
        x = torch.randn(3, dtype=torch.complex64)
        given = x.conj() if number % 2 else x
        assert torch.equal(graph([given])[0], given.resolve_conj() + 1)
        (result,) = lazy([x])
        assert result.is_conj() and torch.equal(result.resolve_conj(), (x + 1).conj().resolve_conj())
    assert replays() == 4 and lazy.reason == "it cannot be recorded: a result is conjugated or negated by a bit"


def test_each_size_has_a_recording() -> None:
    graph = made(lambda n, x: (x * n,), [UserInput(0), UserInput(1)], is_symbolic=True)
    for _ in range(4):
        for n in range(MOST_SIZES + 3):
            x = torch.randn(n + 1)
            assert torch.equal(graph([n, x])[0], x * n)
    assert len(Tape.made) == MOST_SIZES and replays() == 3 * MOST_SIZES
    assert totals()["unrecorded"] == {f"its inputs have more than {MOST_SIZES} sizes": 1}


def test_what_cannot_be_recorded_runs_plainly() -> None:
    class Refusing(Tape):
        def record(self, run: GraphCall, inputs: list[Any], events: Sequence[Event]) -> Sequence[Any]:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    graph = Replayed(
        plain(lambda x: (x * 2,)),
        recordable([UserInput(0)], [UserOutput(0)]),
        0,
        wanted=True,
        tape=Refusing,
        here=lambda d: 0,
    )
    for k in range(3):
        assert graph([torch.tensor(float(k))])[0].item() == 2 * k
    assert totals()["unrecorded"] == {"it cannot be recorded: operation not permitted when stream is capturing": 1}


def test_without_being_asked_recordings_take_no_more_than_a_share_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_graphs, "_memory_of", lambda device: 1 << 30)
    monkeypatch.setattr(cuda_graphs, "recorded_bytes", lambda device: 100 << 20 if len(Tape.made) == 1 else 200 << 20)
    monkeypatch.setattr(cuda_graphs, "TIMED_CALLS", 0)
    first, second = (made(lambda x: (x * 2,), [UserInput(0)]) for _ in range(2))
    first.wanted = second.wanted = False
    for graph in (first, second):
        for k in range(3):
            assert graph([torch.tensor(float(k))])[0].item() == 2 * k
    assert first.reason == "" and second.reason == "with it recordings would hold 200 MB of the device"


@pytest.mark.parametrize(
    "waits, calls, is_recorded",
    [
        ([True, True], 2, True),
        ([False, False], 2, False),
        ([True, False, True], 3, True),
        ([False, True, False], 3, False),
    ],
)
def test_a_call_that_was_disturbed_does_not_decide(
    waits: list[bool], calls: int, is_recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether calls wait for the host, where they are timed: where two do not agree, a third one tells."""
    timed = iter(waits)

    def run(graph: Replayed, place: cuda_graphs._Place, args: list[Tensor]) -> Any:
        place.timed.append((None, None, float(next(timed))))
        return graph.plain(args)

    monkeypatch.setattr(Replayed, "_timed", run)
    monkeypatch.setattr(cuda_graphs, "_waits_for_host", lambda each: bool(each[2]))
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    graph.wanted = False
    monkeypatch.setattr(cuda_graphs.torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(cuda_graphs.torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(cuda_graphs, "_memory_of", lambda device: 1 << 30)
    for k in range(6):
        assert graph([torch.tensor(float(k))])[0].item() == 2 * k
    (place,) = (place for sizes in graph.sizes.values() for place in sizes.places)
    assert len(place.timed) == calls and replays() == (5 - calls if is_recorded else 0)


def test_a_reset_of_dynamo_gives_up_all_recordings() -> None:
    """Also of functions behind a graph break, which Dynamo keeps; what somebody holds stays as it is."""
    torch.compile(lambda x: x + 1, backend="assay")(torch.ones(2))
    graph, w, x = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)]), torch.randn(4), torch.randn(4)
    for _ in range(3):
        (held,) = graph([w, x])
    tapes = [weakref.ref(tape) for tape in Tape.made]
    Tape.made.clear()
    torch._dynamo.reset()
    gc.collect()
    assert tapes and all(tape() is None for tape in tapes) and torch.equal(held, w * x)
    for _ in range(3):
        assert torch.equal(graph([w, x])[0], w * x)
    assert replays() == 2 and len(Tape.made) == 1


def test_another_stream_runs_plainly() -> None:
    here = [0]
    graph = Replayed(
        plain(lambda x: (x * 2,)), recordable([UserInput(0)], [UserOutput(0)]), 0,
        wanted=True, tape=Tape, here=lambda d: here[0],
    )  # fmt: skip
    for stream in (0, 0, 1, None, 0):
        here[0] = stream  # type: ignore[call-overload]
        assert graph([torch.tensor(3.0)])[0].item() == 6
    assert replays() == 2


def test_threads_do_not_share_results() -> None:
    graph = made(lambda x: (x * 2,), [UserInput(0)])
    wrong: list[float] = []

    def calls(start: int) -> None:
        for number in range(start, start + 200):
            (result,) = graph([torch.full((64,), float(number))])
            if not torch.equal(result, torch.full((64,), 2.0 * number)):
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and replays() > 0


def test_what_is_held_when_a_recording_is_made_counts() -> None:
    pool = Pool(0, 0)
    recording = record(plain(lambda x: (x * 2,)), [torch.ones(2)], Tape(pool), pool)
    assert recording.is_free()
    (held,) = recording.holding.held
    (result,) = recording.run([torch.ones(2)])
    assert held.is_alive()
    del result
    assert not held.is_alive()
    storage = recording.run([torch.ones(2)])[0].untyped_storage()
    assert held.is_alive()
    del storage
    assert recording.is_free()


# ---- which programs --------------------------------------------------------------------------------------------------


def program_of(function: Callable[..., Any], *inputs: Tensor) -> Any:
    graph = torch.fx.symbolic_trace(function)
    call = as_call(graph, inputs).call
    return capture(call, {}).finish()


def write(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def test_a_graph_that_waits_for_a_value_is_refused() -> None:
    program = program_of(lambda x: x * 2, torch.randn(3))
    (node,) = program.module.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    node.target = torch.ops.aten.equal.default
    assert reason_against(program) == "aten::equal waits for a value"


@pytest.mark.parametrize(("share", "reason"), [(0.0, ""), (0.5, "keeps its random state on the host or the device")])
def test_attention_with_dropout_is_not_recorded(share: float, reason: str) -> None:
    graph = fx.Graph()
    q = graph.placeholder("q")
    target = torch.ops.aten._scaled_dot_product_flash_attention.default
    graph.output([graph.call_function(target, (q, q, q, share))])
    program = Program(fx.GraphModule({}, graph), Signature((UserInput(0),), (UserOutput(0),)))
    assert reason in reason_against(program) and bool(reason) == bool(reason_against(program))


def test_a_written_input_is_no_reason() -> None:
    program = program_of(write, torch.randn(3))
    assert reason_against(program) == "" and cuda_graphs._written(program) == {0}


def test_modes() -> None:
    assert Options.of(None, "reduce-overhead").cudagraphs is True
    assert Options.of(None, "default").cudagraphs is None
    assert Options.of(None, "max-autotune-no-cudagraphs").cudagraphs is False
    with pytest.raises(OptionError, match="cudagraphs is 'yes'; it takes True, False or None"):
        Options.of({"cudagraphs": "yes"}, None)


def test_buffers_lie_still() -> None:
    graph = made(lambda b, x: (b + x,), [Buffer(0, "b"), UserInput(1)])
    b = torch.zeros(2)
    for k in range(4):
        b.add_(1)
        assert graph([b, torch.ones(2)])[0][0].item() == k + 2
    assert replays() == 3 and len(Tape.made) == 1


def count(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A state that the graph writes, and a result that is a view of it."""
    state.add_(x)
    return state * 2, state[1:]


def test_a_written_input_that_lies_still_is_replayed() -> None:
    graph = made(count, [UserInput(0), UserInput(1)], 2, written=frozenset({0}))
    state, expected = torch.zeros(3), torch.zeros(3)
    for k in range(6):
        x = torch.full((3,), float(k))
        expected += x
        twice, part = graph([state, x])
        assert torch.equal(state, expected) and torch.equal(twice, expected * 2)
        assert part.data_ptr() == state[1:].data_ptr()
        del twice, part
    assert replays() == 5 and len(Tape.made) == 1


def test_written_inputs_that_take_turns_have_a_recording_each() -> None:
    graph = made(count, [UserInput(0), UserInput(1)], 2, written=frozenset({0}))
    states = [torch.zeros(3), torch.full((3,), 10.0)]
    for k in range(12):
        graph([states[k % 2], torch.ones(3)])
    assert states[0][0].item() == 6 and states[1][0].item() == 16
    assert len(Tape.made) == 2 and replays() >= 8


def test_a_written_input_that_moves_is_written_where_it_is() -> None:
    graph = made(count, [UserInput(0), Parameter(1, "w")], 2, written=frozenset({0}))
    w, kept = torch.ones(3), []
    for k in range(12):
        kept.append(torch.full((3,), float(k)))
        graph([kept[-1], w])  # what is written is another tensor at each call, and all are held
    assert [state[0].item() for state in kept] == [k + 1 for k in range(12)]
    assert totals()["unrecorded"] == {cuda_graphs.MOVING: 1}


# ---- forward and backward in one memory ------------------------------------------------------------------------------


def test_a_backward_lies_in_the_memory_of_its_forward() -> None:
    step, w = Step(), torch.randn(4, requires_grad=True)
    for _ in range(8):
        x = torch.randn(4)
        w.grad = None
        step(w, x).sum().backward()
        assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]
    forward, backward = Tape.made
    assert backward.pool is forward.pool and len(forward.lent) == 2
    assert forward.replays == 7 and backward.replays == 6 and totals()["recorded"] == 2


def keeper(held: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """A hook that keeps what is saved."""

    def keep(value: Tensor) -> Tensor:
        held.append(value)
        return value

    return keep


DRAWN = ["step", "add up", "twice", "keep", "late", "two", "no backward", "hook", "drop", "others", "next"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(DRAWN), min_size=6, max_size=30))
def test_nothing_that_is_held_is_overwritten_by_forward_or_backward(steps: list[str]) -> None:
    """Gradients are kept over forward, graphs are walked twice or late, and a hook keeps saved values.

    Other weights come in too. Before their step, the gradients of the last ones are kept.
    """
    Tape.made.clear()
    step, weights = Step(), [torch.randn(3, requires_grad=True) for _ in range(3)]
    w = weights[0]
    kept, late = list[tuple[Tensor, Tensor]](), list[tuple[Tensor, Tensor, Tensor]]()

    def gradient(result: Tensor, x: Tensor, w: Tensor, **kwargs: Any) -> None:
        before = None if w.grad is None else w.grad.clone()
        result.sum().backward(**kwargs)
        expected = (w * x).cos() * x
        assert w.grad is not None
        assert torch.equal(w.grad, expected if before is None else before + expected)

    for number, what in enumerate(steps):
        x = torch.full((3,), number + 1.0)
        if what in ("others", "next"):
            weights.append(weights.pop(0))
            w = weights[0]
        if what not in ("add up", "late"):
            w.grad = None
        held: list[Tensor] = []
        if what == "hook":
            with torch.autograd.graph.saved_tensors_hooks(keeper(held), lambda value: value):
                result = step(w, x)
            values = [value.clone() for value in held]
        else:
            result = step(w, x)
        assert torch.equal(result, (w * x).sin())
        if what == "two":
            gradient(step(w, x + 1), x + 1, w)
        if what == "no backward":
            late.append((result, x, w))
            continue
        gradient(result, x, w, retain_graph=what == "twice")
        if what == "twice":
            gradient(result, x, w)
        if what == "hook":
            assert all(torch.equal(a, b) for a, b in zip(held, values, strict=True))
        if what == "late" and late:
            late[-1][2].grad = None
            gradient(*late.pop())
        if what == "keep":
            assert w.grad is not None
            kept.append((w.grad, w.grad.clone()))
            w.grad = None
        if what == "drop":
            kept.clear()
        if what == "others":
            for weight in weights:
                weight.grad = None
        del result
        for value, expected in kept:
            assert torch.equal(value, expected)


@pytest.mark.parametrize("how", ["gradients are kept over forward", "graphs are walked twice"])
def test_forward_and_backward_have_memory_apart_where_sharing_costs_replays(how: str) -> None:
    step, w = Step(), torch.randn(4, requires_grad=True)
    replays = []
    for _ in range(24):
        x = torch.randn(4)
        result = step(w, x).sum()
        w.grad = None
        if how == "graphs are walked twice":
            result.backward(retain_graph=True)
        w.grad = None
        before = sum(tape.replays for tape in Tape.made)
        result.backward()
        assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]
        replays.append(sum(tape.replays for tape in Tape.made) - before)
    assert replays[-6:] == [1] * 6 and step.sharing <= 1 and totals()["recorded"] <= 5


def test_memory_that_was_lent_outlives_its_recordings() -> None:
    step, w, x = Step(), torch.randn(4, requires_grad=True), torch.randn(4)
    for _ in range(6):
        w.grad = None
        step(w, x).sum().backward()
    w.grad = None
    result = step(w, x)
    step.forward.sizes.clear()
    step.backward.sizes.clear()
    tape = weakref.ref(Tape.made[0])
    Tape.made.clear()
    assert tape() is not None
    w.grad = None
    result.sum().backward()
    assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]
    del result
    gc.collect()
    assert tape() is None


def test_a_recording_stands_for_the_settings_that_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library looks at them when it is called, and a replay calls none."""
    chosen = ["tf32"]
    monkeypatch.setattr(cuda_graphs, "settings", lambda: chosen[0])
    factor = {"tf32": 2, "ieee": 3}
    graph = Replayed(
        plain(lambda x: (x * factor[chosen[0]],)), recordable([UserInput(0)], [UserOutput(0)], is_set=True), 0,
        wanted=True, tape=Tape, here=lambda d: 0,
    )  # fmt: skip
    for precision in ("tf32", "ieee", "tf32", "ieee"):
        chosen[0] = precision
        for number in range(3):
            assert graph([torch.tensor(float(number))])[0].item() == factor[precision] * number
    assert replays() == 10


def test_what_calls_a_library_is_recorded_for_what_the_user_has_set() -> None:
    def is_set(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
        gm = make_fx(function)(*inputs)
        return bool(cuda_graphs._calls(SimpleNamespace(module=gm)) & cuda_graphs.LIBRARIES)  # type: ignore[arg-type]

    x = torch.randn(2, 3, 8, 8)
    assert is_set(lambda x: torch.conv2d(x, torch.ones(4, 3, 2, 2)), x)
    assert is_set(lambda x: x[0, 0] @ x[0, 1], x)
    assert not is_set(lambda x: x.relu(), x)


def test_settings_are_read_from_torch() -> None:
    before = torch.backends.cudnn.allow_tf32
    first = cuda_graphs.settings()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=not before, deterministic=True):
        assert cuda_graphs.settings() != first
    assert cuda_graphs.settings() == first


def test_what_nothing_reads_may_lie_anywhere() -> None:
    """A number that Dynamo hands over as a tensor of the CPU, and guards on."""
    graph = Replayed(
        plain(lambda x, number: (x * 2,)),
        recordable([UserInput(0), UserInput(1)], [UserOutput(0)], unread=frozenset({1})),
        0, wanted=True, tape=Tape, here=lambda d: 0,
    )  # fmt: skip
    for number in range(4):
        assert graph([torch.tensor(float(number)), torch.full((), 1e-5)])[0].item() == 2 * number
    (state,) = graph.sizes.values()
    assert replays() == 3 and state.last.recording is not None
    assert [one.position for one in state.last.recording.copied] == [0] and not state.last.recording.fixed


def test_an_input_on_the_host_that_nothing_reads_is_no_reason() -> None:
    def graph(reads: bool) -> Program:
        made = fx.Graph()
        x, number = made.placeholder("x"), made.placeholder("number")
        product = made.call_function(torch.ops.aten.mul.Tensor, (x, number if reads else 2))
        made.output([product])
        with FakeTensorMode():
            x.meta["val"] = product.meta["val"] = torch.empty(4, device="cuda")
            number.meta["val"] = torch.empty(())
        return Program(fx.GraphModule({}, made), Signature((UserInput(0), UserInput(1)), (UserOutput(0),)))

    assert reason_against(graph(reads=True)) == "a tensor that it is given is on cpu, other tensors are on cuda:0"
    assert reason_against(graph(reads=False)) == ""
    for reads, unread in ((True, frozenset[int]()), (False, frozenset({1}))):
        found = cuda_graphs.Recordable.of(graph(reads))
        assert found is not None and found.unread == unread


@pytest.mark.parametrize(("share", "reason"), [(0.0, ""), (0.5, "a tensor that it is given is on cpu")])
def test_random_state_on_the_host_is_read_by_attention_with_dropout_alone(share: float, reason: str) -> None:
    made = fx.Graph()
    q, seed, offset = map(made.placeholder, ("q", "seed", "offset"))
    target = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
    made.output([made.call_function(target, (q, q, q, q, None, q, q, seed, offset, share, [True] * 4))])
    with FakeTensorMode():
        q.meta["val"] = torch.empty(4, device="cuda")
        seed.meta["val"] = offset.meta["val"] = torch.empty((), dtype=torch.int64)
    program = Program(fx.GraphModule({}, made), Signature(tuple(map(UserInput, range(3))), (UserOutput(0),)))
    found = cuda_graphs.Recordable.of(program)
    assert found is not None and found.reason.startswith(reason) and bool(found.reason) == bool(reason)
    assert found.unread == (frozenset() if reason else frozenset({1, 2}))


def test_changes_of_large_blocks_and_of_what_forward_saved() -> None:
    large, small = 1 << 20, 1 << 10
    made = fx.Graph()
    saved, x = made.placeholder("saved"), made.placeholder("x")
    cuda = torch.device("cuda")

    def empty(name: str, size: int) -> Allocate:
        return Allocate(name, (Int(size),), (Int(1),), torch.float32, cuda)

    with FakeTensorMode():
        for node in (saved, x):
            node.meta["val"] = torch.empty(large, device="cuda")
    made.output([x])
    program = Program(fx.GraphModule({}, made), Signature((Saved("s"), UserInput(0)), (UserOutput(0),)))
    steps = (
        empty("small", small),
        empty("sine", large),
        Reinterpret("view", "saved", (Int(4),), (Int(1),), Int(0)),
        Free(("saved",)),
        empty("other", large),
        Free(("sine", "view")),
        empty("last", large),
    )
    found = cuda_graphs.Recordable.of(program, steps)
    size = 4 * large
    assert found is not None
    assert found.changes == (("sine[0]", size), ("other[0]", size), ("sine[0]", 0), (0, 0), ("last[0]", size))


@pytest.mark.parametrize(
    ("lent", "returned"),
    [
        ([], {}),
        ([[0]], {1: Returned(0)}),
        ([[1]], {4: Returned(0)}),
        ([[0, 2]], {2: Returned(0)}),
        ([[0], [2]], {1: Returned(0), 3: Returned(8)}),
        ([[1, 2]], {4: Returned(0)}),
    ],
)
def test_what_a_recording_was_lent_is_given_back_with_the_last_that_lies_there(
    lent: list[list[int]], returned: dict[int, Event]
) -> None:
    """`returned` has at which place among the events."""
    changes = [Change("a", 3), Change(0), Change("b", 3), Change(2), Change("c", 5), Change("a"), Change(1)]

    class Lent:
        def __init__(self, first: int) -> None:
            self.place = first, first + 3

    given = {n: (Lent(8 * n), tuple(positions)) for n, positions in enumerate(lent)}
    expected: list[Event] = [Taken(0, 3), Taken(1, 3), Taken(2, 5), Freed(0)]
    for at, event in returned.items():
        expected.insert(at, event)
    assert _events(changes, given) == expected  # type: ignore[arg-type]
