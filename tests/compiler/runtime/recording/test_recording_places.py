"""Recordings of a graph that is called with several sets of parameters, as by layers that are compiled one by one."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.compiler.ir.graph.roles import Buffer, UserInput
from assay.compiler.journal import reset, totals
from assay.compiler.runtime.recording import cuda_graphs, recording
from assay.compiler.runtime.recording.cuda_graphs import MOST_MISSES
from assay.compiler.runtime.recording.recording import Pool
from tests.taped import WEIGHT, Step, Tape, made, replays

ROUNDS = 6


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Tape.made.clear()
    gc.collect()
    reset()


@pytest.mark.parametrize("layers", [2, 5])
def test_each_set_of_parameters_has_a_recording(layers: int) -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    weights, x = [torch.randn(4) for _ in range(layers)], torch.randn(4)
    for _ in range(ROUNDS):
        for w in weights:
            assert torch.equal(graph([w, x])[0], w * x)
    assert len(Tape.made) == layers and replays() == layers * (ROUNDS - 1)
    assert totals()["unrecorded"] == {}


def test_in_the_order_of_the_calls_before_only_one_recording_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    weights, x = [torch.randn(4) for _ in range(5)], torch.randn(4)
    asked: list[object] = []
    fits = cuda_graphs._Place.fits

    def counted(place: cuda_graphs._Place, args: list[Tensor]) -> bool:
        asked.append(place)
        return fits(place, args)

    for _ in range(ROUNDS):
        for w in weights:
            graph([w, x])
    monkeypatch.setattr(cuda_graphs._Place, "fits", counted)
    for w in weights:
        graph([w, x])
    assert len(asked) == len(set(asked)) == 5
    for _ in range(3):
        graph([weights[2], x])
    assert len(asked) > 5 + 3 and asked[-1] is asked[-2] is asked[2]


def test_what_is_asked_of_others_results_grows_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not with their square, though each recording may write what any other one gave."""
    alive_of = recording.alive_of

    def asked_in_a_step(layers: int) -> int:
        step, weights = Step(), [torch.randn(4, requires_grad=True) for _ in range(layers)]
        asked: list[int] = []
        monkeypatch.setattr(recording, "alive_of", lambda held: asked.append(len(held)) or alive_of(held))
        for _ in range(12):
            asked.clear()
            value = torch.randn(4)
            for w in weights:
                value, w.grad = step(w, value), None
            before = replays()
            value.sum().backward()
            assert len(weights[0].grad) == 4
        assert replays() == before + layers
        return sum(asked)

    few, many = asked_in_a_step(4), asked_in_a_step(16)
    assert 0 < few and many <= 5 * few


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_layers_that_are_trained(layers: int) -> None:
    """Forward through all of them, then backward; the gradients are kept till the next step."""
    step, weights = Step(), [torch.randn(4, requires_grad=True) for _ in range(layers)]
    counts = [0]
    for _ in range(12):
        x = torch.randn(4)
        value, expected = x, x
        for w in weights:
            value, expected = step(w, value), (w * expected).sin()
        assert torch.equal(value, expected)
        wanted = torch.autograd.grad(expected.sum(), weights)
        for w in weights:
            w.grad = None
        value.sum().backward()
        for w, gradient in zip(weights, wanted, strict=True):
            torch.testing.assert_close(w.grad, gradient)
        counts.append(replays())
    assert [after - before for before, after in pairwise(counts)][-4:] == [2 * layers] * 4
    assert totals()["unrecorded"] == {}


def test_two_models_by_turns_while_the_gradients_of_the_other_are_kept() -> None:
    step, weights = Step(), [torch.randn(4, requires_grad=True) for _ in range(2)]
    counts = [0]
    for _ in range(16):
        for w in weights:
            x = torch.randn(4)
            w.grad = None
            step(w, x).sum().backward()
            assert torch.equal(w.grad, (w * x).cos() * x)  # type: ignore[arg-type]
        counts.append(replays())
    assert [after - before for before, after in pairwise(counts)][-4:] == [4] * 4


def test_parameters_that_are_gone_leave_their_place_to_others() -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    x = torch.randn(1000)
    kept = torch.randn(1000)
    for _ in range(8):
        w = torch.randn(1000)
        for _ in range(3):
            graph([kept, x])
            assert torch.equal(graph([w, x])[0], w * x)
        (sizes,) = graph.sizes.values()
        assert len(sizes.places) == 2
        del w


def test_sets_of_parameters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MOST_PLACES", 3)
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    weights, x = [torch.randn(4) for _ in range(6)], torch.randn(4)
    for _ in range(4 * MOST_MISSES):
        for w in weights:
            assert torch.equal(graph([w, x])[0], w * x)
    (sizes,) = graph.sizes.values()
    assert len(sizes.places) == 3
    assert totals()["unrecorded"]["it is called with more than 3 sets of parameters"] == 1


def test_a_parameter_that_moves_alone_is_of_no_other_place() -> None:
    graph = made(lambda w, b, x: (w * x + b,), [WEIGHT, Buffer(1, "b"), UserInput(2)])
    w, x, last = torch.randn(4), torch.randn(4), torch.randn(4)
    for _ in range(12):
        b = torch.randn(4)  # while the last one is there
        assert torch.equal(graph([w, b, x])[0], w * x + b)
        last = b
    (sizes,) = graph.sizes.values()
    assert len(sizes.places) == 1 and len(Tape.made) == 2 and last is b


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["call", "keep", "drop", "new"])), max_size=40))
def test_results_are_those_of_the_parameters_that_are_passed(calls: list[tuple[int, str]]) -> None:
    Tape.made.clear()
    graph = made(lambda w, x: (w * x, w + x), [WEIGHT, UserInput(1)], 2)
    weights, kept = [torch.randn(3) for _ in range(4)], list[tuple[Tensor, Tensor]]()
    for number, (which, what) in enumerate(calls):
        if what == "new":
            weights[which] = torch.randn(3)
        x = torch.full((3,), float(number))
        results = graph([weights[which], x])
        assert torch.equal(results[0], weights[which] * x) and torch.equal(results[1], weights[which] + x)
        if what == "keep":
            kept.append((results[0], results[0].clone()))
        if what == "drop":
            kept.clear()
        del results
        assert all(torch.equal(value, expected) for value, expected in kept)


# ---- inputs that other recordings gave -------------------------------------------------------------------------------


def test_what_a_recording_gave_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy_each = recording.copy_each
    monkeypatch.setattr(recording, "copy_each", lambda to, of: (copied.append(len(to)), copy_each(to, of)))
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    weights = [torch.randn(4) for _ in range(3)]
    for _ in range(ROUNDS):
        copied.clear()
        x = torch.randn(4)
        value = x
        for w in weights:
            value = graph([w, value])[0]
        assert torch.equal(value, x * weights[0] * weights[1] * weights[2])
    assert replays() == 3 * (ROUNDS - 1) and copied == [1]  # the first one's


def test_what_lies_elsewhere_is_copied_there_unless_somebody_holds_what_does() -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    first, second = torch.randn(4), torch.randn(4)
    for _ in range(3):
        graph([second, graph([first, torch.randn(4)])[0]])
    before = replays()
    for number in range(4):
        x, kept = torch.randn(4), graph([first, torch.randn(4)])[0]
        was = kept.clone()
        if number % 2:
            del kept
        assert torch.equal(graph([second, x])[0], second * x)
        assert number % 2 or torch.equal(kept, was)
    assert replays() == before + 4 + 2


def test_what_lies_elsewhere_for_long_while_that_is_held_is_copied() -> None:
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    first, second = torch.randn(4), torch.randn(4)
    for _ in range(3):
        graph([second, graph([first, torch.randn(4)])[0]])
    kept = graph([first, torch.randn(4)])[0]
    was = kept.clone()
    for _ in range(2 * MOST_MISSES + 1):
        x = torch.randn(4)
        assert torch.equal(graph([second, x])[0], second * x)
    before = replays()
    graph([second, torch.randn(4)])
    assert replays() == before + 1 and torch.equal(kept, was)


def test_memory_that_is_read_where_it_lies_outlives_who_gave_it() -> None:
    giver = made(lambda w, x: (w + x,), [WEIGHT, UserInput(1)])
    reader = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    others = [made(lambda w, x: (w - x,), [WEIGHT, UserInput(1)]) for _ in range(3)]
    w = torch.randn(4)
    for _ in range(3):
        reader([w, giver([w, torch.randn(4)])[0]])
    (place,) = (place for sizes in reader.sizes.values() for place in sizes.places)
    assert place.recording is not None
    (lying,) = place.recording.lying
    giver.sizes.clear()
    for other in others:  # in the memory of what is gone, but for what is read
        for _ in range(3):
            result = other([w, torch.ones(4)])[0]
            assert torch.equal(result, w - 1) and result.data_ptr() != lying.pointer
            del result
    before = replays()
    for _ in range(2):
        x = torch.randn(4)
        assert torch.equal(reader([w, x])[0], w * x)
    held = lying.held
    assert replays() == before + 2 and held.storage is not None
    del lying, place
    reader.sizes.clear()
    assert held.storage is None and not held.is_alive()


def test_two_inputs_in_one_result_are_not_both_expected_there() -> None:
    """Written there from elsewhere they would overlap."""
    giver = made(lambda w, x: (w + x,), [WEIGHT, UserInput(1)])
    reader = made(lambda w, a, b: (w * a + b,), [WEIGHT, UserInput(1), UserInput(2)])
    w, two = torch.randn(6), torch.randn(4)
    for _ in range(3):
        y = giver([w, torch.randn(6)])[0]
        a, b = y[:4], y[2:]
        assert torch.equal(reader([two, a, b])[0], two * a + b)
        del y, a, b
    before = replays()
    a, b = torch.randn(4), torch.randn(4)
    assert torch.equal(reader([two, a, b])[0], two * a + b)
    assert replays() == before + 1


def test_what_lies_elsewhere_is_not_written_over_what_a_forward_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved memory is lent to its backward, so another graph's result may come to lie there, which a third graph reads.

    A reader of another pool does not know of the saved memory, and copies.
    """
    step, w = Step(), torch.randn(16, requires_grad=True)
    giver = made(lambda w, x: (w + x,), [WEIGHT, UserInput(1)])
    readers = [made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)]) for _ in range(2)]
    monkeypatch.setattr(readers[1], "_pool", lambda place, here: Pool(0, here))
    for _ in range(6):
        step(w, torch.randn(16)).sum().backward()
    v = w.detach()
    for _ in range(3):
        for reader in readers:
            reader([v, giver([v, torch.randn(16)])[0]])
    lying = [len(place.recording.lying) for r in readers for z in r.sizes.values() for place in z.places]  # type: ignore[union-attr]
    assert lying == [1, 0]
    for _ in range(3):
        x, other = torch.randn(16), torch.randn(16)
        w.grad = None
        value = step(w, x)
        for reader in readers:
            assert torch.equal(reader([v, other])[0], v * other)
        value.sum().backward()
        torch.testing.assert_close(w.grad, (v * x).cos() * x)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["chain", "fresh", "view", "keep", "drop", "anew"])), max_size=40
    )
)
def test_chains_of_recordings_are_as_in_eager(calls: list[tuple[int, str]]) -> None:
    Tape.made.clear()
    graphs = [made(lambda w, x: (w * x, w + x), [WEIGHT, UserInput(1)], 2) for _ in range(3)]
    weights, kept = [torch.randn(4) for _ in range(3)], list[tuple[Tensor, Tensor]]()
    value = torch.randn(4)
    for which, what in calls:
        if what == "anew":
            graphs[which].sizes.clear()
        if what == "fresh":
            value = torch.randn(4)
        if what == "view":
            value = torch.randn(8)[2:6]
        x, w = value.clone(), weights[which]
        value, other = graphs[which]([w, value])
        assert torch.equal(value, w * x) and torch.equal(other, w + x)
        if what == "keep":
            kept.append((value, value.clone()))
        if what == "drop":
            kept.clear()
        del other
        assert all(torch.equal(value, expected) for value, expected in kept)


CALLS = ["chain", "forward", "backward", "fresh", "keep", "drop", "anew", "apart"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.sampled_from(CALLS)), min_size=12, max_size=60))
def test_chains_between_forwards_and_their_backwards_are_as_in_eager(
    trained: int, calls: list[tuple[int, str]]
) -> None:
    """What is passed on comes from recordings of all kinds, and backwards wait meanwhile. `apart`: a graph is recorded
    anew in a pool of its own. So many sets of parameters are `trained` before, so that what they save is lent."""
    before = [[(which, "fresh"), (which, "forward"), (0, "backward")] for which in range(trained)]
    Tape.made.clear()
    graphs = [made(lambda w, x: (w * x, w + x), [WEIGHT, UserInput(1)], 2) for _ in range(3)]
    step, weights = Step(), [torch.randn(8, requires_grad=True) for _ in range(3)]
    pending, kept = list[tuple[int, Tensor, Tensor]](), list[tuple[Tensor, Tensor]]()
    value = torch.randn(8)
    for which, what in (*sum(before, []) * 5, *calls):  # noqa: RUF017
        w = weights[which]
        if what == "chain":
            x = value.clone()
            value = graphs[which]([w.detach(), value])[0]
            assert torch.equal(value, w.detach() * x)
        elif what == "forward":
            x = value.clone()
            value = step(w, value)
            assert torch.equal(value, (w * x).sin())
            pending.append((which, value, (w.detach() * x).cos() * x))
            value = value.detach()
        elif what == "backward" and pending:
            number, result, expected = pending.pop(which % len(pending))
            weights[number].grad = None
            result.sum().backward()
            torch.testing.assert_close(weights[number].grad, expected)
            del result
        elif what == "fresh":
            value = torch.randn(8)
        elif what == "keep":
            kept.append((value, value.clone()))
        elif what == "drop":
            kept.clear()
        elif what in ("anew", "apart"):
            graphs[which].sizes.clear()
            if what == "apart":
                graphs[which]._pool = lambda place, here: Pool(0, here)  # type: ignore[method-assign]
        assert all(torch.equal(value, expected) for value, expected in kept)


def test_a_result_that_is_let_go_again_is_not_copied_any_more() -> None:
    """It was held over one call. Where it is held again, it takes twice as many calls."""
    graph = made(lambda w, x: (w * x,), [WEIGHT, UserInput(1)])
    w, x = torch.randn(4), torch.randn(4)

    def calls_until_it_lies_still() -> int:
        for count in range(1, 100):
            first, second = (graph([w, x])[0].data_ptr() for _ in range(2))
            if first == second == Tape.made[-1].own[0].data_ptr():
                return count
        raise AssertionError("it is copied by every call")

    for _ in range(ROUNDS):
        graph([w, x])
    waits = []
    for _ in range(3):
        kept = [graph([w, x])[0] for _ in range(3)]
        assert len({each.data_ptr() for each in kept}) == 3 and torch.equal(kept[0], w * x)
        del kept
        waits.append(calls_until_it_lies_still())
    assert waits[0] < waits[1] < waits[2], "the more often it was wrong"
