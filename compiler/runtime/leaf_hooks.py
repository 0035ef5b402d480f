"""Hooks of leaves to which nothing flows back: eager does not call them.

A compiled call is one node of autograd, and the engine goes on from a node to all of its inputs. So where a backward
has no gradient for some of them, the hooks of the leaves behind those would be called with None. Until that backward
ends they are called only if a gradient arrives after all, by another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Hook = Callable[[Any], Any]
Node = torch.autograd.graph.Node


def spare_unreached(ctx: Any, gradients: Sequence[object], tensors: Sequence[int]) -> None:
    """Sees to the hooks of leaves behind the inputs that get no gradient from the backward that is running; those at
    the positions `tensors` are no numbers. Nothing may be behind one that requires grad, as a view without gradients.
    """
    if not ctx.next_functions:  # those of a whole backward are called by whoever has recorded it
        return
    edges = zip(tensors, ctx.next_functions, strict=True)
    unreached = [node for index, (node, _) in edges if node is not None and gradients[index] is None]
    for leaf in _leaves_behind(unreached):
        if leaf._backward_hooks or leaf._post_accumulate_grad_hooks:
            _spare(leaf)


def _leaves_behind(nodes: list[Node]) -> Iterator[torch.Tensor]:
    seen = set(nodes)
    pending = list(seen)
    while pending:
        node = pending.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf
        following = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= following
        pending += following


class _Spared:
    """A leaf whose hooks wait for a gradient; `hooks` are its own, by the dictionaries and keys that autograd has."""

    def __init__(self, leaf: torch.Tensor) -> None:
        self.is_reached = False
        self.hooks: list[tuple[dict[int, Hook], int, Hook, Hook]] = []
        self.handle = leaf.register_hook(self.note)

    def note(self, gradient: torch.Tensor | None) -> None:
        self.is_reached = self.is_reached or gradient is not None

    def put(self, hooks: dict[int, Hook], key: int, instead: Hook) -> None:
        self.hooks.append((hooks, key, hooks[key], instead))
        hooks[key] = instead

    def end(self) -> None:
        self.handle.remove()
        for hooks, key, hook, instead in self.hooks:
            if hooks.get(key) is instead:  # else its owner has taken it away
                hooks[key] = hook


class _Waiting:
    """A hook that is not called with None; after accumulation, not where nothing was accumulated."""

    def __init__(self, hook: Hook, spared: _Spared, is_after: bool) -> None:
        self.hook, self.spared, self.is_after = hook, spared, is_after

    def __call__(self, value: Any) -> Any:
        is_called = self.spared.is_reached if self.is_after else value is not None
        return self.hook(value) if is_called else None


def _spare(leaf: torch.Tensor) -> None:
    before: dict[int, Hook] = leaf._backward_hooks or {}
    after: dict[int, Hook] = leaf._post_accumulate_grad_hooks or {}
    waiting = next((hook for hook in (*before.values(), *after.values()) if isinstance(hook, _Waiting)), None)
    if waiting is not None:  # another call's, or of a backward that has failed
        spared = waiting.spared
        spared.is_reached = False
    else:
        own = [*before]
        spared = _Spared(leaf)
        for key in own:
            spared.put(before, key, _Waiting(before[key], spared, is_after=False))
        for key in list(after):
            spared.put(after, key, _Waiting(after[key], spared, is_after=True))
    torch.autograd.Variable._execution_engine.queue_callback(spared.end)
