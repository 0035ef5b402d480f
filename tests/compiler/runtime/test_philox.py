"""Philox, the masks that ATen draws by it, and dropout on a GPU taken apart: all without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.ir.graph.roles import Program, Saved, Seed
from assay.compiler.ops.calls.drawn_numbers import dropout_mask, reserve_numbers
from assay.compiler.passes.random.give_key import give_key
from assay.compiler.passes.random.split_dropout import split_dropout
from assay.compiler.runtime import philox
from assay.reference.loops import OPERATORS
from tests.compiler.autograd.test_partition import joint_of
from tests.compiler.passes.random.test_split_dropout import recorded
from tests.lowering import check

aten = torch.ops.aten
KNOWN = [
    ((0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((-1, -1, -1), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x299F31D0A4093822, 0x85A308D3243F6A88 - (1 << 64), 0x0370734413198A2E),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Seed, call and thread as int64, and their four words: the vectors that the authors of Philox publish."""


@pytest.mark.parametrize(("place", "expected"), KNOWN)
def test_words_are_the_published_ones(place: tuple[int, int, int], expected: tuple[int, ...]) -> None:
    seed, call, thread = (torch.tensor(part) for part in place)
    found = philox.words(seed, call, thread, torch.arange(4))
    assert [int(word) - philox.LEAST for word in found] == list(expected)


@pytest.mark.parametrize("width", philox.WIDTHS)
@pytest.mark.parametrize("key", [(1, 2), (-5, 1 << 40), (1 << 62, -1)])
def test_words_are_those_of_the_reference(key: tuple[int, int], width: int) -> None:
    seed, start = map(torch.tensor, key)
    call, thread, lane = philox.place_of(torch.arange(300), 9, width)
    found = philox.words(seed, start + call, thread, lane)
    assert found.tolist() == [OPERATORS["philox"](*key, at, 9, width) for at in range(300)]


def drawn_by_threads(key: Tensor, numel: int, share: float, threads: int, width: int) -> Tensor:
    """The mask as a launch makes it: each thread by itself, one call of Philox after the other."""
    mask = torch.empty(numel, dtype=torch.bool)
    for thread in range(threads):
        starts = range(thread * width, numel, threads * width)
        each = width if width == 1 else max(4, width)  # a pair has a call of its own
        taken = [(turn * each + n, start + n) for turn, start in enumerate(starts) for n in range(width)]
        for order, at in taken:
            place = (torch.tensor(part) for part in (int(key[0]), int(key[1]) + order // 4, thread, order % 4))
            word = int(philox.words(*place)) - philox.LEAST
            uniform = np.float32(word) * np.float32(2**-32) + np.float32(2**-33)
            mask[at] = bool(uniform < np.float32(share))
    return mask


@pytest.mark.parametrize("width", philox.WIDTHS)
@pytest.mark.parametrize("share", [0.9, 0.3])
def test_dropout_mask_is_drawn_as_by_threads(width: int, share: float) -> None:
    key, numel = torch.tensor([123456789, 40]), 7 * 5 * width * 2
    found = dropout_mask(key, [numel], philox.limit_of(share, torch.float32), 7, width)
    assert torch.equal(found, drawn_by_threads(key, numel, share, 7, width))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [1.0, 0.9, 0.5, 0.1, 1e-9, 0.9999999])
def test_limit_is_the_last_word_below_the_share(share: float, dtype: torch.dtype) -> None:
    limit = philox.limit_of(share, dtype) - philox.LEAST

    def is_kept(word: int) -> bool:
        uniform = np.float32(word) * np.float32(2**-32) + np.float32(2**-33)
        return bool(float(uniform) < share if dtype is torch.float64 else uniform < np.float32(share))

    assert is_kept(limit) or limit == 0
    assert limit == 2**32 - 1 or not is_kept(limit + 1)


@pytest.mark.parametrize(("shape", "width"), [((6, 10), 4), ((3, 5, 7), 1), ((48,), 16), ((9, 6), 2), ((), 1)])
def test_mask_is_generated(shape: tuple[int, ...], width: int) -> None:
    key = torch.tensor([[3, 1], [3, 7]])
    limit = philox.limit_of(0.6, torch.float32)

    def masked(key: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        mask = dropout_mask(key[1], list(x.shape), limit, 5, width)
        return aten.native_dropout_backward.default(x, mask, 1.25), mask

    schedule = check(masked, key, torch.randn(shape))
    assert schedule.counts.generated == schedule.counts.compute


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The widths and launches of an H200."""
    monkeypatch.setattr(philox, "width_of", lambda dtype, device: 16 // dtype.itemsize)
    monkeypatch.setattr(philox, "threads_of", lambda numel, device: 256 * min(1056, -(-numel // 256)))
    yield


def two_dropouts(x: Tensor) -> Tensor:
    x = aten.native_dropout.default(x.sin(), 0.1, True)[0]
    return aten.native_dropout.default(x.cos(), 0.5, True)[0] * 2  # type: ignore[no-any-return]


def on_gpu(program: Program) -> Program:
    """The program with each value's device a GPU: what passes read of it."""
    for node in program.module.graph.nodes:
        value = node.meta.get("val")
        parts = value if isinstance(value, tuple | list) else (value,)
        moved = [torch.device("cuda", 0) if isinstance(part, Tensor) else None for part in parts]
        for part, device in zip(parts, moved, strict=True):
            if device is not None:
                part.fake_device = device
    return program


def test_split_reserves_numbers_once_for_dropouts_in_a_row(as_on_a_gpu: None) -> None:
    program = on_gpu(recorded(two_dropouts, torch.randn(64, 100)))
    assert split_dropout(program) == 2
    graph = program.module.graph
    (key,) = graph.find_nodes(op="call_function", target=reserve_numbers)
    masks = graph.find_nodes(op="call_function", target=dropout_mask)
    assert [(*node.args[0].args, node.args[4]) for node in masks] == [(key, 0, 0, 4), (key, 0, 1, 4)]  # type: ignore[union-attr]
    assert key.args == ([1, 1], torch.device("cuda", 0))
    assert not graph.find_nodes(op="call_function", target=aten.native_dropout.default)


def test_split_reserves_numbers_anew_behind_attention_that_draws(as_on_a_gpu: None) -> None:
    attend = aten._scaled_dot_product_efficient_attention.default

    def between(x: Tensor) -> Tensor:
        x = aten.native_dropout.default(x, 0.1, True)[0]
        x = x + attend(x, x, x, None, False, 0.1)[0]
        return aten.native_dropout.default(x, 0.1, True)[0] * 2  # type: ignore[no-any-return]

    program = on_gpu(recorded(between, torch.randn(2, 3, 8, 16)))
    assert split_dropout(program) == 2
    names = [node.target for node in program.module.graph.nodes if node.op == "call_function"]
    draws = [target for target in names if target in (reserve_numbers, attend)]
    assert draws == [reserve_numbers, attend, reserve_numbers]
    assert give_key(program) == (program, None)


def test_split_leaves_dropout_beside_what_a_recording_may_draw(as_on_a_gpu: None) -> None:
    program = on_gpu(
        recorded(lambda x: aten.native_dropout.default(x, 0.1, True)[0] + aten.rand.default([64]), torch.randn(64))
    )
    assert split_dropout(program) == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_split_leaves_what_draws_otherwise(share: float, as_on_a_gpu: None) -> None:
    program = on_gpu(recorded(lambda x: aten.native_dropout.default(x, share, True)[0] * 2, torch.randn(64)))
    assert split_dropout(program) == 0


def test_split_leaves_dropout_where_no_width_is_known(as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox, "width_of", lambda dtype, device: None)
    program = on_gpu(recorded(two_dropouts, torch.randn(64)))
    assert split_dropout(program) == 0


def test_backward_keeps_the_key_and_no_mask(as_on_a_gpu: None) -> None:
    joint = on_gpu(joint_of(two_dropouts, [torch.randn(64, 100, requires_grad=True)]))
    assert split_dropout(joint) == 2
    split = cheapest_split(joint)
    names = [role.of for role in split.forward.signature.outputs if isinstance(role, Saved)]
    kept = [node.meta["val"] for node in split.forward.module.graph.nodes if node.name in names]
    assert sum(value.dtype is torch.bool for value in kept) == 0
    assert sum(value.dtype is torch.int64 for value in kept) == 1
    assert split.backward.module.graph.find_nodes(op="call_function", target=dropout_mask)
    assert not split.backward.module.graph.find_nodes(op="call_function", target=reserve_numbers)


def test_give_key_makes_one_reservation_an_input(as_on_a_gpu: None) -> None:
    program = on_gpu(recorded(two_dropouts, torch.randn(64, 100)))
    split_dropout(program)
    given, reserve = give_key(program)
    assert reserve is not None and given.signature.inputs == (*program.signature.inputs, Seed())
    assert given.placeholders[-1].meta["val"].shape == (2, 2)
    assert not given.module.graph.find_nodes(op="call_function", target=reserve_numbers)
    x, keys = torch.randn(64, 100), torch.tensor([[7, 9], [7, 10]])
    (found,) = given.module(x, keys)
    mask = dropout_mask(keys[0], [64, 100], philox.limit_of(0.9, x.dtype), 6400, 4)
    again = dropout_mask(keys[1], [64, 100], philox.limit_of(0.5, x.dtype), 6400, 4)
    expected = (x.sin() * mask / 0.9).cos() * again * 2 * 2
    torch.testing.assert_close(found, expected)


def test_reserve_numbers_draws_them_while_the_user_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    first, second = (philox.reserve_numbers([3, 4], torch.device("cpu")) for _ in range(2))
    assert first.shape == (2, 2) and first.dtype is torch.int64
    assert len({*first.view(-1).tolist(), *second.view(-1).tolist()}) == 8
