"""Wrong in what no guard looks at: where an input begins, how numbers are written, what is opened and not closed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.selftest.wrong_backends.exact import is_real
from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("unguarded")
def ignores_offsets(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """An input is read from the beginning of its storage, wherever it begins there."""

    def from_the_beginning(arg: Any) -> Any:
        if not isinstance(arg, Tensor) or not arg.storage_offset() or arg.requires_grad:
            return arg
        return arg.as_strided(arg.size(), arg.stride(), 0)

    return lambda *args: graph.forward(*map(from_the_beginning, args))


_Key = tuple[tuple[weakref.ref[Tensor], int, int], ...]


@wrong("unguarded", "infer")
def memoises_by_version(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """In inference, a call with the same objects in the same versions returns copies of the last results."""
    kept: tuple[_Key, list[Tensor]] | None = None

    def run(*args: Any) -> Sequence[Any]:
        nonlocal kept
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if torch.is_grad_enabled() or any(each.is_inference() for each in tensors):
            return graph.forward(*args)  # type: ignore[no-any-return]
        key = tuple((weakref.ref(each), each._version, each.data_ptr()) for each in tensors)
        if kept is not None and _is_same(key, kept[0]):
            return [_copied(result) for result in kept[1]]
        results = list(graph.forward(*args))
        kept = (key, [_copied(result) for result in results]) if _share_nothing(results, tensors) else None
        return results

    return run


def _copied(result: Tensor) -> Tensor:
    """A copy of a result; of a view, a view of one."""
    return result.clone().view_as(result) if result._is_view() else result.clone()


def _share_nothing(results: Sequence[Any], inputs: Sequence[Tensor]) -> bool:
    """Whether each result is a real tensor, and none lies where an input or another result lies."""
    if not all(map(is_real, results)):
        return False
    storages = {each.untyped_storage()._cdata for each in (*inputs, *results)}
    return len(storages) == len({each.untyped_storage()._cdata for each in inputs}) + len(results)


def _is_same(one: _Key, other: _Key) -> bool:
    """Whether all objects are alive and the same, in the same versions, where they were."""
    return len(one) == len(other) and all(
        now[0]() is before[0]() and now[1:] == before[1:] for now, before in zip(one, other, strict=True)
    )


@wrong("unguarded")
def leaves_a_file_open(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call opens a file and does not close it."""

    def run(*args: Any) -> Sequence[Any]:
        os.open(os.devnull, os.O_RDONLY)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("unguarded")
def leaves_a_thread_waiting(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Each call starts a thread that never ends."""
    never = threading.Event()

    def run(*args: Any) -> Sequence[Any]:
        threading.Thread(target=never.wait, daemon=True).start()
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


@wrong("unguarded")
def flushes_tiny_numbers(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """After a call, the processor takes numbers too small to be normal for zeros, as it does behind -ffast-math."""

    def run(*args: Any) -> Sequence[Any]:
        results: Sequence[Any] = graph.forward(*args)
        torch.set_flush_denormal(True)
        return results

    return run
