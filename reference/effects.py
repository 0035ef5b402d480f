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
    very object of an earlier result; `("result view", j)`: a view of result j; `("base view", b)`: a view of
    intermediate b, which is no result; `("new",)`; `("value", v)` for what is no tensor.
    `flows` says of each result whether autograd carries a gradient through it, `views` whether autograd knows it as a
    view: what was detached shares memory and is none.
    """

    data: frozenset[int]
    metadata: frozenset[int]
    results: tuple[tuple[Any, ...], ...]
    flows: tuple[bool, ...]
    views: tuple[bool, ...]


def effects(function: Callable[..., Any], args: Sequence[Any]) -> Effects:
    """Runs `function(*args)`, which may write its arguments: pass copies. The random state is as before."""
    before = [_snapshot(value) for value in args]
    with torch.random.fork_rng(devices=[]):
        results = pytree.tree_leaves(function(*args), is_leaf=lambda value: value is None)
    after = [_snapshot(value) for value in args]
    pairs = [(i, b, a) for i, (b, a) in enumerate(zip(before, after, strict=True)) if b is not None and a is not None]
    data = frozenset(i for i, b, a in pairs if not _same_data(b, a))
    metadata = frozenset(i for i, b, a in pairs if b[1] != a[1])
    flows = tuple(isinstance(r, torch.Tensor) and r.requires_grad and not _is_leaf(r) for r in results)
    views = tuple(isinstance(r, torch.Tensor) and r._is_view() for r in results)
    return Effects(data, metadata, tuple(_relation(i, results, args) for i in range(len(results))), flows, views)


def _is_leaf(value: torch.Tensor) -> bool:
    """Autograd refuses to say it of a view taken without gradients whose base was written since: none flow through."""
    try:
        return value.is_leaf
    except RuntimeError:
        return True


def _snapshot(value: object) -> tuple[Any, ...] | None:
    if not isinstance(value, torch.Tensor):
        return None
    version = 0 if value.is_inference() else value._version
    return value.detach().clone(), (tuple(value.shape), tuple(value.stride()), value.storage_offset()), version


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
    for position, other in enumerate(args):
        if isinstance(other, torch.Tensor) and _shares(value, other):
            return ("input view", position)
    for position, other in enumerate(results if value._is_view() else results[:index]):
        if isinstance(other, torch.Tensor) and other is not value and not other._is_view() and _shares(value, other):
            return ("result view", position)
    bases = list(dict.fromkeys(id(r._base) for r in results if isinstance(r, torch.Tensor) and r._is_view()))
    return ("base view", bases.index(id(value._base))) if value._is_view() else ("new",)


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
