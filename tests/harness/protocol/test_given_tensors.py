"""How a call is given its numbers: further along in their storage, or in the tensors of the call before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.harness.calls.clone import Call
from assay.harness.calls.memory import aliases
from assay.harness.case import Case, Made
from assay.harness.observe.observation import observe
from assay.harness.observe.scripts import Scripts
from assay.harness.protocol.acts import (
    DEFAULT,
    FRESH,
    GIVEN,
    HANDED_ON,
    PLACED,
    REWRITTEN,
    SAME,
    UNSEEN,
    Act,
    needed_for,
)
from assay.harness.protocol.fresh_numbers import nothing, placed
from assay.harness.run import made_call

Seen = list[tuple[int, int, int, list[float]]]
"""Of the argument in each call: its address, its version, its offset, its numbers."""
SEEN: Seen = []
"""What a closure held would be copied with the program."""


def columns() -> Tensor:
    return torch.arange(12.0).view(3, 4).t().clone()


@pytest.mark.parametrize("make", [lambda: torch.arange(6.0), columns, lambda: torch.arange(6)], ids=["row", "t", "int"])
def test_placed_tensors_are_the_same_one_element_further(make: Callable[[], Tensor]) -> None:
    given = make()
    (moved,) = placed(Call(nothing, (given,), {})).args
    assert torch.equal(moved, given) and moved.stride() == given.stride() and moved.dtype == given.dtype
    assert moved.storage_offset() == given.storage_offset() + 1
    assert moved.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()


def test_placed_tensors_of_a_dtype_lie_behind_each_other_in_one_storage() -> None:
    given = (torch.rand(3), torch.arange(2), torch.rand(2, 2), torch.arange(4))
    moved = placed(Call(nothing, given, {})).args
    assert all(map(torch.equal, moved, given))
    assert [each.storage_offset() for each in moved] == [1, 1, 5, 4]
    storages = [each.untyped_storage().data_ptr() for each in moved]
    assert storages[0] == storages[2] != storages[1] == storages[3]
    assert not aliases(dict(enumerate(moved)))


def test_what_lies_free_between_placed_tensors_is_the_same_each_time() -> None:
    given = (torch.tensor([2.0, 3.0]), torch.tensor([4.0]))
    for _ in range(20):
        (first, _second) = placed(Call(nothing, given, {})).args
        assert first.as_strided((5,), (1,), 0).tolist() == [1.0, 2.0, 3.0, 1.0, 4.0]
        torch.full((5,), torch.nan)  # what is made next gets memory in which numbers stood


def test_placed_tensors_of_one_storage_cannot_free_each_other() -> None:
    call = placed(Call(lambda: None, (torch.randn(3), torch.randn(3)), {}))
    with pytest.raises(RuntimeError, match="resizable"):
        call.args[0].untyped_storage().resize_(0)


def test_placed_leaves_keep_what_they_require() -> None:
    given = torch.ones(3, requires_grad=True)
    (moved,) = placed(Call(nothing, (given,), {})).args
    assert moved.requires_grad and moved.is_leaf and moved._base is None


def test_placed_tensors_stay_where_they_share_memory() -> None:
    base = torch.arange(6.0)
    call = Call(nothing, (base, base[2:]), {})
    assert placed(call) is call


def run(given: str) -> Seen:
    """What a program sees of its argument in a call, and in one that is given it so."""
    SEEN.clear()

    def made() -> Made:
        return program, (torch.rand(4),), {}

    def program(x: Tensor) -> Tensor:
        SEEN.append((x.data_ptr(), x._version, x.storage_offset(), x.tolist()))
        return x + 1

    case = Case("given", made, ("infer",), (), ("tiny",))

    def make(which: int) -> Call:
        return made_call(case, "tiny", which, "cpu")

    scripts = Scripts(case, "infer", (Act(1), Act(2, given=given)), make(0), make)
    observe(scripts.script(), "infer", 0)
    return list(SEEN)


@pytest.mark.parametrize(
    ("given", "is_same_place", "grows", "offset", "is_other"),
    [
        (FRESH, False, False, 0, True),
        (PLACED, False, False, 1, True),
        (REWRITTEN, True, True, 0, True),
        (UNSEEN, True, False, 0, True),
        (SAME, True, False, 0, False),
    ],
)
def test_call_is_given_its_numbers_as_its_act_says(
    given: str, is_same_place: bool, grows: bool, offset: int, is_other: bool
) -> None:
    first, second = run(given)
    assert (first[0] == second[0]) is is_same_place
    assert second[2] == offset and (not is_same_place or second[1] - first[1] == grows)
    assert (first[3] != second[3]) is is_other


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_default_acts_give_tensors_that_begin_later(mode: str) -> None:
    assert any(act.given == PLACED for act in DEFAULT[mode])


def test_acts_lean_on_the_call_whose_tensors_they_are_given() -> None:
    for given in GIVEN:
        assert needed_for((Act(1), Act(2, given=given)), [1]) == ({0, 1} if given in HANDED_ON else {1})
