"""Stores that do the same to other buffers: one program, of whose instances each set of buffers has its share.

    a1 = f(a0); b1 = f(b0); c1 = f(c0)    ->    instance n computes f of the buffers of set n // (instances of a set)

An optimizer's step is such a kernel, over all parameters of one shape (`schedule/batched_launches.py`). The buffers are
arguments, and a tree of branches chooses among them: five of them for 32 sets, each the same for a whole warp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from assay.compiler.ir.loops.independent_stores import buffers_of, components, with_buffers
from assay.compiler.ir.loops.kernel import Kernel, Store


@dataclass(frozen=True, slots=True)
class Twins:
    """`first` is the kernel of the first set alone; `sets` are the positions of each set's buffers, as `first` has
    them, among the buffers of all."""

    first: Kernel
    sets: tuple[tuple[int, ...], ...]


def twins_of(kernel: Kernel) -> tuple[Twins, ...]:
    """The kernel as several, each over sets of buffers; none where few of its stores are alike."""
    position = {buffer.name: at for at, buffer in enumerate(kernel.buffers)}
    alike: dict[Kernel, list[tuple[int, ...]]] = {}
    for stores in components(kernel) if len(kernel.stores) > 1 else ():
        names = buffers_of(stores)
        alike.setdefault(_alone(kernel, stores, names), []).append(tuple(position[name] for name in names))
    if sum(map(len, alike.values())) < 2 * len(alike) or not alike:
        return ()
    return tuple(Twins(first, tuple(sets)) for first, sets in alike.items())


def _alone(kernel: Kernel, stores: tuple[Store, ...], names: tuple[str, ...]) -> Kernel:
    """The kernel of some stores, under names that tell nothing of which they are."""
    known = {buffer.name: buffer for buffer in kernel.buffers}
    alone = replace(kernel, stores=stores, buffers=tuple(known[name] for name in names))
    return with_buffers(alone, {name: f"b{at}" for at, name in enumerate(names)})


@dataclass(frozen=True, slots=True)
class Instances:
    """So many instances of a Triton function; `number` is the expression of an instance's own number."""

    function: str
    count: int
    number: str


def launcher_text(name: str, of_each: Instances, twins: Twins, count: int, symbols: Sequence[str]) -> str:
    """The program `name` of `count` buffers, which has the instances `of_each` set of them."""
    own = [f"p{at}" for at in range(len(twins.sets[0]))]
    lines = [f"pid = {of_each.number}", f"which = pid // {of_each.count}"]
    lines += _chosen(twins.sets, 0, len(twins.sets), own)
    lines.append(f"{of_each.function}({', '.join([f'pid % {of_each.count}', *own, *symbols])})")
    arguments = ", ".join([*(f"a{at}" for at in range(count)), *symbols])
    return "\n".join(["@triton.jit", f"def {name}({arguments}):", *(f"    {line}" for line in lines), ""])


def _chosen(sets: Sequence[tuple[int, ...]], begin: int, end: int, own: Sequence[str]) -> Iterator[str]:
    """The lines that give the buffers of set `which`, which is in begin <= which < end, their names in the program."""
    if end - begin == 1:
        yield from (f"{name} = a{at}" for name, at in zip(own, sets[begin], strict=True))
        return
    middle = (begin + end) // 2
    yield f"if which < {middle}:"
    yield from (f"    {line}" for line in _chosen(sets, begin, middle, own))
    yield "else:"
    yield from (f"    {line}" for line in _chosen(sets, middle, end, own))
