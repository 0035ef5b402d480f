"""Stores of a kernel that have nothing to do with each other: they share no buffer, but single numbers that are read.

Such stores may run in different instances of a kernel, and in any order. So nothing may be written over what stores
apart from it read (`schedule/dependence.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.compiler.ir.loops.index import ONE
from assay.compiler.ir.loops.kernel import Cast, Expr, Kernel, Load, Store
from assay.compiler.ir.loops.rewrite import map_children, nodes


def buffers_of(stores: Sequence[Store]) -> tuple[str, ...]:
    """The buffers that stores read and write, in the order in which they are met."""
    found = dict[str, None]()
    for store in stores:
        found.update((node.buffer, None) for node in nodes(store.expr) if isinstance(node, Load))
        found[store.buffer] = None
    return tuple(found)


def components(kernel: Kernel) -> list[tuple[Store, ...]]:
    """The stores, those together that share a buffer, directly or by way of others."""
    written = {store.buffer for store in kernel.stores}
    numbers = {buffer.name for buffer in kernel.buffers if buffer.numel is ONE} - written
    parent = {buffer.name: buffer.name for buffer in kernel.buffers}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    for store in kernel.stores:
        for name in set(buffers_of([store])) - numbers:
            parent[root(name)] = root(store.buffer)
    found: dict[str, list[Store]] = {}
    for store in kernel.stores:
        found.setdefault(root(store.buffer), []).append(store)
    return [tuple(stores) for stores in found.values()]


def with_buffers(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with its buffers under other names. Cost: linear in distinct expressions."""
    memo: dict[Expr, Expr] = {}

    def walk(expr: Expr) -> Expr:
        made = memo.get(expr)
        if made is None:
            made = memo[expr] = renamed(expr)
        return made

    def renamed(expr: Expr) -> Expr:
        if isinstance(expr, Load):
            return replace(expr, buffer=names[expr.buffer])
        return Cast(walk(expr.expr), expr.dtype) if isinstance(expr, Cast) else map_children(expr, walk)

    return replace(
        kernel,
        stores=tuple(replace(store, buffer=names[store.buffer], expr=walk(store.expr)) for store in kernel.stores),
        buffers=tuple(replace(buffer, name=names[buffer.name]) for buffer in kernel.buffers),
    )
