"""The alias graph and the poke test, beside the same question asked by brute force."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.harness.calls import memory
from assay.harness.calls.memory import aliases, poke


def bytes_of(tensor: Tensor) -> set[int]:
    """Every address that the tensor occupies, one element after the other."""
    item, start = tensor.element_size(), tensor.data_ptr()
    steps = [range(0, size * stride, stride) if stride else [0] for size, stride in zip(tensor.shape, tensor.stride())]  # noqa: B905
    if 0 in tensor.shape:
        return set()
    firsts = (start + item * sum(indices) for indices in itertools.product(*steps))
    return {first + byte for first in firsts for byte in range(item)}


views = st.builds(
    lambda size, stride, offset: (size, stride, offset),
    st.lists(st.integers(0, 3), min_size=0, max_size=3),
    st.lists(st.integers(0, 7), min_size=3, max_size=3),
    st.integers(0, 20),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(views, min_size=2, max_size=5))
def test_memory_aliases_are_shared_bytes(layouts: list[tuple[list[int], list[int], int]]) -> None:
    storage = torch.zeros(64)
    tensors = {f"t{i}": storage.as_strided(s, t[: len(s)], o) for i, (s, t, o) in enumerate(layouts)}
    expected = {
        (one, other, "overlaps")
        for one, other in itertools.combinations(sorted(tensors), 2)
        if bytes_of(tensors[one]) & bytes_of(tensors[other])
    }
    assert aliases(tensors) == expected


def test_memory_aliases_across_storages_and_dtypes() -> None:
    one = torch.zeros(4)
    other = torch.from_numpy(one.numpy())
    assert one.untyped_storage()._cdata != other.untyped_storage()._cdata
    assert aliases({"a": one, "b": other, "c": one.view(torch.int16)[1:2], "d": one.clone()}) == {
        ("a", "b", "overlaps"),
        ("a", "c", "overlaps"),
        ("b", "c", "overlaps"),
    }


def test_memory_identity_is_told_apart_from_overlap() -> None:
    one, empty = torch.zeros(4), torch.zeros(0)
    assert aliases({"a": one, "b": one, "c": empty, "d": empty, "e": torch.zeros(0)}) == {
        ("a", "b", "is"),
        ("c", "d", "is"),
    }


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_memory_poke_sees_what_changes_and_puts_it_back(dtype: torch.dtype) -> None:
    base = torch.ones(4, 3).to(dtype)
    kept = base.clone()
    outputs = {"output": base[1:]}
    watched = {"input": base, "output": outputs["output"], "row": base[0], "last": base[3], "other": base.clone()}
    assert poke(outputs, watched) == {"output": ("input", "last")}
    assert torch.equal(base, kept)


def test_memory_poke_leaves_expanded_memory_alone() -> None:
    assert poke({"output": torch.zeros(1).expand(3)}, {}) == {}
    assert set(poke({"output": torch.zeros(3, 2)[:, 0]}, {})) == {"output"}


def test_memory_poke_works_on_leaves_and_inference_tensors() -> None:
    leaf = torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        made = torch.ones(3)
    assert poke({"a": leaf, "b": made}, {"v": leaf.detach(), "w": made}) == {"a": ("v",), "b": ("w",)}
    assert torch.equal(leaf, torch.ones(3))


def test_memory_poke_sees_changes_of_what_it_keeps_a_digest_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "DIGESTED_BYTES", 1)
    base, other = torch.randn(3, 4), torch.randn(4, 3).t()
    watched = {"base": base, "row": base[2], "column": base[:, 1], "other": other}
    before = {name: tensor.clone() for name, tensor in watched.items()}
    assert poke({"first": base[0], "across": other[1:]}, watched) == {"first": ("base", "column"), "across": ("other",)}
    assert all(torch.equal(tensor, before[name]) for name, tensor in watched.items())
