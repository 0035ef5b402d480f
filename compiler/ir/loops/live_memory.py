"""Which memory is live while a schedule runs: the blocks that its steps make and free, and their bytes."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from assay.compiler.ir.graph.decisions import Moment
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import (
    Allocate,
    CallAten,
    Expect,
    Free,
    Launch,
    Reinterpret,
    Reuse,
    Step,
    references,
)
from assay.compiler.ir.tensors.in_place import part, private, window
from assay.compiler.ir.tensors.layout.strides import hints, is_known


def reads_of(step: Step) -> Iterator[str]:
    """The values that a step needs to exist."""
    if isinstance(step, Launch):
        yield from step.arguments
    elif isinstance(step, CallAten):
        yield from references((step.args, step.kwargs))
    elif isinstance(step, Reinterpret):
        yield step.base
    elif isinstance(step, Reuse):
        yield step.of
    elif isinstance(step, Expect):
        yield step.name


def given_by(step: Step) -> str | None:
    """The value that a step makes."""
    return step.name if isinstance(step, Allocate | Reuse | CallAten | Reinterpret) else None


def live_bytes(steps: Sequence[Step], values: Mapping[str, object], given: Mapping[str, int]) -> Iterator[Moment]:
    """The bytes that are live after each step that makes a value. `given` are the bytes that inputs hold until they are
    freed; of other inputs nothing counts, as their memory is the caller's."""
    heap = _Heap(values, given)
    yield Moment("", heap.live_bytes)
    for step in steps:
        if isinstance(step, Free):
            heap.free(step.names)
        elif (name := given_by(step)) is not None:
            heap.make(name, step)
            yield Moment(name, heap.live_bytes)
    yield Moment("", heap.live_bytes)


class Change(NamedTuple):
    """A block of so many bytes is made; or one is needed no more: 0. That of an input is known by its position."""

    block: str | int
    bytes: int = 0


def changes(
    steps: Sequence[Step], values: Mapping[str, object], inputs: Mapping[str, int], least: int
) -> Iterator[Change]:
    """What happens, one after the other, to the blocks of at least `least` bytes that the steps make, and to the
    `inputs`, whose positions these are by name."""
    heap = _Heap(values, dict.fromkeys(inputs, 0), least)
    for step in steps:
        if isinstance(step, Free):
            gone = heap.free(step.names)
            yield from (Change(inputs.get(block, block)) for block in gone if block in inputs or heap.sizes[block])
        elif (name := given_by(step)) is not None:
            yield from (Change(block, heap.sizes[block]) for block in heap.make(name, step) if heap.sizes[block])


class _Heap:
    """Blocks of memory, each live while some value is that is made of it; new ones of fewer than `least` bytes weigh
    nothing."""

    def __init__(self, values: Mapping[str, object], given: Mapping[str, int], least: int = 0) -> None:
        self.values, self.least = values, least
        self.blocks: dict[str, tuple[str, ...]] = {name: (name,) for name in given}
        self.sizes = dict(given)
        self.users = Counter(self.sizes.keys())
        self.several: set[str] = set()
        self.live_bytes = sum(given.values())

    def make(self, name: str, step: Step) -> tuple[str, ...]:
        """The blocks that are new."""
        is_shared = _has_memory_of_another(step)
        self.blocks[name] = self._shared(step) if is_shared else self._fresh(name, step)
        self.users.update(self.blocks[name])
        return () if is_shared else self.blocks[name]

    def free(self, names: Sequence[str]) -> list[str]:
        """The blocks that are live no more."""
        gone = []
        for block in (block for name in names for block in self.blocks.pop(name, ())):
            self.users[block] -= 1
            if not self.users[block]:
                self.live_bytes -= self.sizes[block]
                gone.append(block)
        return gone

    def _fresh(self, name: str, step: Step) -> tuple[str, ...]:
        """A block for each tensor that a step makes."""
        value = self.values.get(name)
        parts = value if isinstance(value, tuple | list) else [value]
        sizes = map(_bytes_of, parts) if name in self.values else [_allocated_bytes(step)]
        made = {f"{name}[{index}]": size if size >= self.least else 0 for index, size in enumerate(sizes)}
        self.sizes |= made
        self.several |= {name} if isinstance(value, tuple | list) else set()
        self.live_bytes += sum(made.values())
        return tuple(made)

    def _shared(self, step: Step) -> tuple[str, ...]:
        """The blocks of what a step makes a view of, or a part of."""
        of = next(reads_of(step), "")
        blocks = self.blocks.get(of, ())
        if isinstance(step, CallAten) and step.target is operator.getitem and of in self.several:
            return (blocks[step.args[1]],)
        return blocks


def _has_memory_of_another(step: Step) -> bool:
    """Whether what a step makes lies in the memory of the first value that it reads."""
    if isinstance(step, Reuse | Reinterpret):
        return True
    if not isinstance(step, CallAten):
        return False
    if isinstance(step.target, torch._ops.OpOverload):
        return any(result.alias_info is not None for result in step.target._schema.returns)
    return step.target in (operator.getitem, private, part, window)


def _allocated_bytes(step: Step) -> int:
    """The bytes of what the program has no value for, as far as they are known."""
    sizes = [size.value for size in step.size if isinstance(size, Int)] if isinstance(step, Allocate) else []
    return math.prod(sizes) * step.dtype.itemsize if isinstance(step, Allocate) and len(sizes) == len(step.size) else 0


def _bytes_of(value: object) -> int:
    """The bytes of a tensor; of one whose size only the data tells, and of what is none, 0."""
    if not isinstance(value, torch.Tensor) or not all(map(is_known, value.shape)):
        return 0
    return torch.Size(hints(value.shape)).numel() * value.element_size()
