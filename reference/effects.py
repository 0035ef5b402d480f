"""What a call does to its inputs and how its results alias, found by running it on real tensors and looking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True)
class Effects:
    """Positions of the inputs whose data or metadata changed, and how each flat result relates to other tensors.

    A relation is `("input", i)`: the very object; `("input view", i)`: shares input i's storage; `("result", j)`: the
    very object of an earlier result; `("result view", j)`: shares an earlier result's storage; `("new",)`;
    `("value", v)` for what is no tensor.
    """

    data: frozenset[int]
    metadata: frozenset[int]
    results: tuple[tuple[Any, ...], ...]


def effects(function: Callable[..., Any], args: Sequence[Any]) -> Effects:
    """Runs `function(*args)`, which may write its arguments: pass copies."""
    before = [_snapshot(value) for value in args]
    results = pytree.tree_leaves(function(*args), is_leaf=lambda value: value is None)
    after = [_snapshot(value) for value in args]
    pairs = [(i, b, a) for i, (b, a) in enumerate(zip(before, after, strict=True)) if b is not None and a is not None]
    data = frozenset(i for i, b, a in pairs if not _same_data(b, a))
    metadata = frozenset(i for i, b, a in pairs if b[1] != a[1])
    return Effects(data, metadata, tuple(_relation(i, results, args) for i in range(len(results))))


def _snapshot(value: object) -> tuple[Any, ...] | None:
    if not isinstance(value, torch.Tensor):
        return None
    return value.detach().clone(), (tuple(value.shape), tuple(value.stride()), value.storage_offset()), value._version


def _same_data(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """A write bumps the version, unless it was hidden: then the values tell."""
    if before[2] != after[2]:
        return False
    return before[0].shape != after[0].shape or torch.equal(before[0], after[0]) or bool(before[0].isnan().any())


def _relation(index: int, results: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
    value = results[index]
    if not isinstance(value, torch.Tensor):
        return ("value", value)
    for name, others in (("input", args), ("result", results[:index])):
        for position, other in enumerate(others):
            if value is other:
                return (name, position)
        for position, other in enumerate(others):
            if isinstance(other, torch.Tensor) and _shares(value, other):
                return (f"{name} view", position)
    return ("new",)


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
