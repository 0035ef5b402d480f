"""CUDA graphs and their memory on the CPU.

A tape runs the graph again at each replay, and reads and writes the very memory of its recording. That memory lies in
an arena, which gives what was freed to whoever asks next.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch._C._dynamo.guards import _reinterpret_tensor as reinterpret  # type: ignore[attr-defined]

from assay.compiler.ir.graph.roles import (
    Gradient,
    GraphCall,
    InputRole,
    OutputRole,
    Parameter,
    Saved,
    Tangent,
    UserInput,
    UserOutput,
)
from assay.compiler.runtime.recording.cuda_graphs import Recordable, Replayed
from assay.compiler.runtime.recording.pool_layout import Event
from assay.compiler.runtime.recording.recording import Pool, is_lazy

WEIGHT = Parameter(0, "weight")
Place = tuple[int, int]
"""Memory, from an address up to another."""
ALIGNED = 16
SEGMENT = 256
EARLY = (1.0, 0.5)
"""What a graph uses on its way before it has read its inputs, in sizes of the largest of these, and"""
LATE = (0.5, 1.5)
"""after that."""


class Arena:
    """The memory of a pool: what is given back goes to who asks next, the smallest that is large enough first."""

    def __init__(self) -> None:
        self.segments: list[Place] = []
        self.free: list[Place] = []
        self.given_back: deque[Place] = deque()
        self.buffers: list[Any] = []

    def take(self, size: int) -> Place:
        """Memory that nobody has; graphs are recorded one at a time."""
        while self.given_back:
            self._merge(self.given_back.popleft())
        size = -(-size // ALIGNED) * ALIGNED
        fitting = [place for place in self.free if place[1] - place[0] >= size]
        if not fitting:
            self._grow(size)
            return self.take(size)
        first, last = min(fitting, key=lambda place: (place[1] - place[0], place[0]))
        self.free.remove((first, last))
        if first + size < last:
            self.free.append((first + size, last))
        return first, first + size

    def give(self, place: Place) -> None:
        """At any time, in any thread."""
        self.given_back.append(place)

    def _merge(self, place: Place) -> None:
        for other in [other for other in self.free if place[0] in other or place[1] in other]:
            self.free.remove(other)
            place = min(place[0], other[0]), max(place[1], other[1])
        self.free.append(place)

    def _grow(self, size: int) -> None:
        size = max(size, SEGMENT)
        buffer = (ctypes.c_ubyte * (size + 2 * ALIGNED))()
        first = -(-ctypes.addressof(buffer) // ALIGNED) * ALIGNED
        ctypes.memset(buffer, 0xC2, ctypes.sizeof(buffer))  # nothing is computed yet
        self.buffers.append(buffer)
        self.segments.append((first, first + size))
        self.free.append((first, first + size))

    def storage(self, size: int) -> UntypedStorage:
        """Memory that is given back when nobody holds it."""
        place = self.take(size)
        return over(place[0], size, _Owned(self, place))


class _Owned:
    def __init__(self, arena: Arena, place: Place) -> None:
        self.arena, self.place = arena, place

    def __del__(self) -> None:
        self.arena.give(self.place)


def over(address: int, size: int, owner: object) -> UntypedStorage:
    """Memory at an address, which holds its owner."""
    memory = (ctypes.c_ubyte * size).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def at(value: Tensor) -> Tensor:
    """A tensor where another one lies, that holds no reference to its memory."""
    if not value.numel():
        return value
    last = sum((size - 1) * stride for size, stride in zip(value.size(), value.stride(), strict=True))
    memory = (ctypes.c_ubyte * ((last + 1) * value.itemsize)).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=value.dtype).as_strided(value.size(), value.stride(), 0)


class Tape:
    """Does what a CUDA graph does: the same memory is read and written at each replay.

    That is the memory of the results, and what is used on the way. Other recordings' results may lie in the latter.
    """

    made: list[Tape] = []  # noqa: RUF012

    def __init__(self, pool: Pool) -> None:
        self.pool, self.replays = pool, 0
        if pool.memory is None:
            pool.memory = Arena()
        self.arena: Arena = pool.memory
        self.lent: list[Place] = []
        Tape.made.append(self)

    def record(self, run: GraphCall, inputs: list[Any], events: Sequence[Event]) -> Sequence[Any]:
        self.run, self.inputs = run, [at(value) if isinstance(value, Tensor) else value for value in inputs]
        memory = {value.untyped_storage()._cdata for value in inputs if isinstance(value, Tensor)}
        largest = max(value.untyped_storage().nbytes() for value in inputs if isinstance(value, Tensor))
        self.early = [self.arena.take(int(share * largest) + ALIGNED) for share in EARLY]
        before = [value.clone() if isinstance(value, Tensor) else value for value in self.inputs]
        values = list(run(inputs))
        for value, was in zip(self.inputs, before, strict=True):
            if isinstance(value, Tensor) and value.numel():  # what is recorded has not been run
                value.copy_(was)
        for place in self.early:
            self.arena.give(place)
        self.late = [self.arena.take(int(share * largest) + ALIGNED) for share in LATE]
        for place in self.late:
            self.arena.give(place)
        placed = _Placed(self.arena, memory)
        results = [placed.value(value) if isinstance(value, Tensor) else value for value in values]
        pairs = enumerate(zip(values, results, strict=True))
        self.own = {index: at(result) for index, (value, result) in pairs if result is not value}  # type: ignore[arg-type]
        return results

    def replay(self) -> None:
        self.replays += 1
        _scribble(self.early)
        fresh = self.run(list(self.inputs))
        _scribble(self.late)
        for index, own in self.own.items():
            own.copy_(fresh[index])  # type: ignore[arg-type]

    def segments(self) -> list[Place]:
        return list(self.arena.segments)

    def lend(self, storage: UntypedStorage) -> UntypedStorage:
        self.lent.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        return over(storage.data_ptr(), storage.nbytes(), self)


def _scribble(places: list[Place]) -> None:
    for first, last in places:
        ctypes.memset(first, 0x3C, last - first)


class _Placed:
    """Results in memory of an arena, that lie there as they lay: views are views, what was one object is one."""

    def __init__(self, arena: Arena, given: set[int]) -> None:
        self.arena, self.given = arena, given
        self.storages: dict[int, UntypedStorage] = {}
        self.values: dict[int, Tensor] = {}

    def value(self, value: Tensor) -> Tensor:
        if value.untyped_storage()._cdata in self.given or is_lazy(value) or not value.numel():
            return value
        if id(value) not in self.values:
            self.values[id(value)] = self._placed(value)
        return self.values[id(value)]

    def _placed(self, value: Tensor) -> Tensor:
        base = value._base
        if base is not None and base.dtype is value.dtype:
            return self.value(base).as_strided(value.size(), value.stride(), value.storage_offset())
        storage = value.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = self.arena.storage(storage.nbytes())
        where = self.storages[storage._cdata]
        return torch.empty(0, dtype=value.dtype).set_(where, value.storage_offset(), value.size(), value.stride())


def plain(function: Callable[..., Sequence[Any]]) -> GraphCall:
    """A function as graphs are called: with one list, which it empties."""

    def run(args: list[Any]) -> tuple[Any, ...]:
        given = tuple(args)
        args.clear()
        return tuple(function(*given))

    return run


def made(
    function: Callable[..., Sequence[Any]], inputs: Sequence[InputRole], outputs: int = 1, **kwargs: Any
) -> Replayed:
    roles = kwargs.pop("roles", [UserOutput(index) for index in range(outputs)])
    what = recordable(inputs, roles, **kwargs)
    return Replayed(plain(function), what, 0, wanted=True, tape=Tape, here=lambda device: 0)


def recordable(
    inputs: Sequence[InputRole], outputs: Sequence[OutputRole], is_symbolic: bool = False, **rest: Any
) -> Recordable:
    """What is told of a graph with those roles."""
    return Recordable(tuple(inputs), tuple(outputs), torch.device("cuda"), is_symbolic, "", **rest)


def replays() -> int:
    return sum(tape.replays for tape in Tape.made)


class Step:
    """A forward and a backward that are recorded, as one node of autograd, as calls with gradients are emitted."""

    def __init__(self, **kwargs: Any) -> None:
        saved = [Saved("a"), Saved("b"), Saved("c")]
        x = UserInput(1)
        self.forward = made(self._forward, [WEIGHT, x], roles=[UserOutput(0), *saved], **kwargs)
        self.backward = made(
            self._backward, [*saved, Tangent(UserOutput(0))], roles=[Gradient(WEIGHT), Gradient(x)], **kwargs
        )
        self.node = self._node()

    @staticmethod
    def _forward(w: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        both = torch.stack([w, x])
        return (w * x).sin(), both, both[1], (w * x).cos()

    @staticmethod
    def _backward(both: Tensor, x: Tensor, cos: Tensor, tangent: Tensor) -> tuple[Tensor, ...]:
        return tangent * cos * x, tangent * cos * both[0]

    def _node(self) -> type[torch.autograd.Function]:
        step = self

        class Node(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, w: Tensor, x: Tensor) -> Tensor:
                result, *saved = step.forward([w.detach(), x.detach()])
                ctx.save_for_backward(*saved)
                return result  # type: ignore[no-any-return]

            @staticmethod
            def backward(ctx: Any, tangent: Tensor) -> Any:
                given = [*ctx.saved_tensors, tangent.contiguous()]
                ctx.maybe_clear_saved_tensors()
                return tuple(step.backward(given))

        return Node

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.node.apply(w, x)  # type: ignore[no-any-return, no-untyped-call]

    @property
    def sharing(self) -> int:
        """The recordings that have lent what they saved."""
        return sum(bool(tape.lent) for tape in Tape.made)


class SideBySide(Step):
    """What its forward saves lies side by side in one storage, and is no view of it."""

    @staticmethod
    def _forward(w: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        block = torch.empty(4 * w.numel())
        saved = [reinterpret(block, shape, (1,), at) for shape, at in zip(_shapes(w), _places(w), strict=True)]
        for part, value in zip(saved, (torch.cat([w, x]), x, (w * x).cos()), strict=True):
            part.copy_(value)
        return ((w * x).sin(), *saved)

    @staticmethod
    def _backward(both: Tensor, x: Tensor, cos: Tensor, tangent: Tensor) -> tuple[Tensor, ...]:
        return tangent * cos * x, tangent * cos * both[: len(x)]


def _shapes(w: Tensor) -> tuple[tuple[int], ...]:
    return (2 * len(w),), (len(w),), (len(w),)


def _places(w: Tensor) -> tuple[int, ...]:
    """Not in the order in which they are returned."""
    return len(w), 3 * len(w), 0
