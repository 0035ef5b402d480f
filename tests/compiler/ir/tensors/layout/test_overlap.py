"""Overlap of strided tensors: the search for a common byte against every byte, looked at."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.compiler.ir.tensors.layout.overlap import PAIRS, layout_key, overlap_test, overlaps
from assay.compiler.ir.tensors.layout.shared_bytes import share_a_byte

STORAGE = torch.zeros(4096, dtype=torch.uint8)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from([torch.uint8, torch.int16, torch.int32, torch.complex64]))
    rank = draw(st.integers(0, 3))
    shape = draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank))
    stride = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 12]), min_size=rank, max_size=rank))
    return STORAGE.view(dtype).as_strided(shape, stride, draw(st.integers(0, 40)))


def footprint(tensor: torch.Tensor) -> set[int]:
    item, found = tensor.element_size(), set()
    for index in itertools.product(*map(range, tensor.shape)):
        start = tensor.storage_offset() + sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        found.update(range(start * item, (start + 1) * item))
    return found


OTHERS = [torch.zeros(3) for _ in range(PAIRS)]
"""So many that storages are told apart by their addresses."""


@given(views(), views())
def test_overlap_is_decided_as_by_looking_at_every_byte(one: torch.Tensor, other: torch.Tensor) -> None:
    expected = bool(footprint(one) & footprint(other))
    assert share_a_byte(one, other) == expected == share_a_byte(other, one)
    assert overlap_test((0,), versions=False)([one, other]) == expected
    assert overlap_test((0,), versions=False)([one, 3, *OTHERS, other]) == expected
    assert overlaps([one, 3, other], versions=False) == (((0, 2),) if expected else ())


def test_overlap_of_interleaved_columns_of_a_large_matrix_is_decided() -> None:
    matrix = torch.zeros(2000, 2000)
    assert not share_a_byte(matrix[:, ::2], matrix[:, 1::2])
    assert share_a_byte(matrix[:, ::2], matrix[:, 4::3])


def test_overlap_that_is_too_hard_to_decide_is_assumed() -> None:
    flat = torch.zeros(1 << 22)
    one = flat.as_strided((99, 98, 97, 7), (9973, 1009, 103, 11))
    other = flat.as_strided((97, 96, 95, 5), (9967, 1013, 107, 13), 5)
    assert share_a_byte(one, other)


def test_groups_are_connected_through_a_third() -> None:
    base = torch.zeros(10)
    assert overlaps([base[:4], base[6:], base[3:7], torch.zeros(3)], versions=False) == ((0, 1, 2),)


def test_layout_key_tells_bases_and_gradients_apart() -> None:
    base = torch.zeros(6)
    same = [layout_key([base[:4], base[2:]]) for _ in range(2)]
    assert same[0] == same[1]
    others = [[base[:4], base[1:5]], [base, base[2:]], [base.detach()[:4], base[2:]], [base[:4], base[2:], 3]]
    assert len({layout_key(values) for values in others} | {same[0]}) == 5


def test_disjoint_views_of_one_tensor_share_a_version() -> None:
    base = torch.zeros(10)
    views = [base[:4], base[4:], base.detach()[2:3]]
    assert not overlap_test((0,), versions=False)(views[:2]) and overlap_test((0,), versions=True)(views[:2])
    assert overlaps(views[:2], versions=True) == ((0, 1),)
    assert not overlap_test((0,), versions=True)([base[:4], base.detach()[4:]])


@pytest.mark.parametrize("others", [[], OTHERS], ids=["two", "many"])
def test_empty_view_of_a_written_tensor_shares_its_version(others: list[torch.Tensor]) -> None:
    """It has no address by which it could be told to lie in the tensor's storage."""
    base = torch.zeros(10)
    assert overlap_test((0,), versions=True)([base, *others, base[4:4]])
    assert not overlap_test((0,), versions=False)([base, *others, base[4:4]])
