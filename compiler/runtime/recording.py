"""A recording: what a graph launches, replayed by one call, with what it takes and how its results are handed out.

A replay reads and writes the very memory of its recording. So

    an input   either has to lie where it lay, which `fits` checks, or is copied to where it lay
    a result   is memory of the recording, handed out under a tensor of its own; `is_free` says whether anything still
               holds what a replay would overwrite
    the rest   is memory of the recording too, and of no other: what one uses on its way another may have returned

A result that is an input, or lies in the memory of one, is made of the input that a call passes.
"""

from __future__ import annotations

import functools
import gc
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, UntypedStorage

from compiler.ir.roles import GraphCall

use_count: Callable[[int], int] = torch._C._storage_Use_Count  # type: ignore[attr-defined]


class Tape(Protocol):
    """The launches of one run, recorded."""

    def record(self, run: GraphCall, inputs: list[Any]) -> Sequence[Any]:
        """What `run` returns for these inputs, which no later recording may overwrite. Nothing need be computed yet.

        Raises: RuntimeError for what cannot be recorded.
        """
        ...

    def replay(self) -> None: ...


_taken: Counter[int] = Counter()


def recorded_bytes(device: int) -> int:
    """The memory of a device that all recordings take which are still there."""
    return _taken[device]


def _give_back(device: int, taken: int) -> None:
    _taken[device] -= taken


class CudaTape:
    """A CUDA graph, with memory of its own: what one recording uses on its way may not be what another one returned."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.graph = torch.cuda.CUDAGraph()
        self.replay = self.graph.replay

    def record(self, run: GraphCall, inputs: list[Any]) -> Sequence[Any]:
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()  # what plain calls have returned is of no use to a memory of its own
        before = torch.cuda.memory_reserved(self.device)
        try:
            results = _captured(self.graph, self.device, lambda: run(inputs))
        except BaseException:
            self._record_nothing()  # at whose end the generator of random numbers knows that nobody records
            raise
        taken = torch.cuda.memory_reserved(self.device) - before
        _taken[self.device] += taken
        weakref.finalize(self, _give_back, self.device, taken)
        return results  # type: ignore[no-any-return]

    def _record_nothing(self) -> None:
        byte = torch.empty(1, dtype=torch.uint8, device=f"cuda:{self.device}")
        _captured(torch.cuda.CUDAGraph(), self.device, byte.zero_)


def _captured(graph: torch.cuda.CUDAGraph, device: int, run: Callable[[], Any]) -> Any:
    """What `run` returns, its launches being recorded."""
    stream, current = _stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    collects = gc.isenabled()
    gc.disable()  # what a collection frees may call what must not be called meanwhile
    try:
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a recording that launches nothing
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                return run()
            finally:
                graph.capture_end()
    finally:
        if collects:
            gc.enable()
        current.wait_stream(stream)


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream that is recorded: always the same, as libraries keep workspace for each that they have seen."""
    return torch.cuda.Stream(device)


@dataclass(frozen=True, slots=True)
class Copied:
    """An input that is copied to where the recording reads it; `to` and what `narrowed` makes of an input have each
    element once."""

    position: int
    to: Tensor
    narrowed: tuple[int, ...]

    def source(self, value: Tensor) -> Tensor:
        for dim in self.narrowed:
            value = value.narrow(dim, 0, 1)
        return value


@dataclass(slots=True)
class Held:
    """A result in memory of the recording, copied out if it was held once too long and may be (`may_copy`). `own` are
    the recording's references to its storage, by tensors and by Python."""

    value: Tensor
    storage: UntypedStorage
    may_copy: bool
    own: tuple[int, int] = (0, 0)
    is_copied: bool = False

    def references(self) -> tuple[int, int]:
        return use_count(self.storage._cdata), sys.getrefcount(self.storage)

    def is_alive(self) -> bool:
        return self.references() != self.own

    def handed(self) -> Tensor:
        """The result as a tensor of its own, which knows nothing of those before it."""
        if self.is_copied:
            return torch.empty_strided(
                self.value.size(), self.value.stride(), dtype=self.value.dtype, device=self.value.device
            ).copy_(self.value)
        if self.value._base is None or self.value._base.dtype is not self.value.dtype:
            return self.value.data
        base: Tensor = self.value._base.data
        return base.as_strided(self.value.size(), self.value.stride(), self.value.storage_offset())


@dataclass(frozen=True, slots=True)
class Part:
    """A result that lies in the memory of an input or of another result: `offset` elements behind where that begins."""

    of: int
    is_input: bool
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def handed(self, base: Tensor) -> Tensor:
        return base.as_strided(self.size, self.stride, base.storage_offset() + self.offset)


@dataclass(frozen=True, slots=True)
class Given:
    """A result that is an input."""

    position: int


@dataclass(frozen=True, slots=True)
class Known:
    """A result that is no tensor, the same at each call."""

    value: object


@dataclass(frozen=True, slots=True)
class Again:
    """A result that is another one."""

    index: int


Result = Held | Part | Given | Known | Again


@dataclass(slots=True)
class Recording:
    """One recording: where its inputs have to lie or are copied to, and how its results are handed out."""

    tape: Tape
    fixed: list[int]
    pointers: list[int]
    copied: list[Copied]
    results: list[Result]
    held: list[Held] = field(default_factory=list)
    misses: int = 0

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the inputs lie where they lay."""
        return [args[position].data_ptr() for position in self.fixed] == self.pointers

    def is_free(self) -> bool:
        """Whether nobody holds what a replay would overwrite. What is held is copied out from now on, if it may be."""
        alive = [held for held in self.held if held.is_alive()]
        for held in alive:
            held.is_copied = held.may_copy
        return not alive

    def copies(self) -> set[int]:
        """The results that are copied out."""
        return {index for index, result in enumerate(self.results) if type(result) is Held and result.is_copied}

    def run(self, args: list[Any]) -> tuple[Any, ...]:
        if self.copied:
            _copy([one.to for one in self.copied], [one.source(args[one.position]) for one in self.copied])
        self.tape.replay()
        handed: list[Any] = []
        for result in self.results:
            if type(result) is Held:
                handed.append(result.handed())
            elif type(result) is Part:
                handed.append(result.handed(args[result.of] if result.is_input else handed[result.of]))
            elif type(result) is Given:
                handed.append(args[result.position])
            elif type(result) is Again:
                handed.append(handed[result.index])
            else:
                handed.append(result.value)  # type: ignore[union-attr]
        args.clear()
        return tuple(handed)


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        torch._foreach_copy_(into, values)


def record(
    plain: GraphCall,
    args: Sequence[Any],
    tape: Tape,
    *,
    stays: Collection[int] = (),
    keeps: Collection[int] = (),
    copies: Collection[int] = (),
) -> Recording:
    """A recording for inputs like `args`, of which those at the positions `stays` have to lie there again. The results
    at the positions `keeps` are never copied out, as who reads them wants them where they lie; those at `copies` are.

    Raises: RuntimeError for what cannot be recorded.
    """
    copied, inputs = list[Copied](), list(args)
    fixed = [position for position in sorted(stays) if isinstance(args[position], Tensor)]
    for position, value in enumerate(args):
        if isinstance(value, Tensor) and position not in stays:
            inputs[position], made = _copied(position, value)
            copied.append(made)
    placing = _Placing(tuple(inputs), keeps)
    placing.place(tape.record(plain, inputs))
    for held in placing.held:  # now that no view of the recorded run is left
        held.own = held.references()
    for index in copies:
        result = placing.results[index]
        if type(result) is Held:
            result.is_copied = result.may_copy
    pointers = [args[position].data_ptr() for position in fixed]
    return Recording(tape, fixed, pointers, copied, placing.results, placing.held)


def _copied(position: int, value: Tensor) -> tuple[Tensor, Copied]:
    """Memory for an input, in its layout.

    Raises: RuntimeError for a layout in which elements overlap otherwise than by being expanded.
    """
    pairs = enumerate(zip(value.size(), value.stride(), strict=True))
    narrowed = tuple(dim for dim, (size, stride) in pairs if size > 1 and not stride)
    own = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    each = Copied(position, own, narrowed).source(own)
    if each.numel() and torch._debug_has_internal_overlap(each) != 0:
        raise RuntimeError("an input overlaps itself")
    return own, Copied(position, each, narrowed)


def is_lazy(value: Tensor) -> bool:
    """Whether a bit says that the numbers in memory are to be conjugated or negated."""
    return value.is_conj() or value.is_neg()


class _Placing:
    """How results are handed out, by what each is and whose memory it has."""

    def __init__(self, inputs: Sequence[Any], keeps: Collection[int]) -> None:
        self.keeps = keeps
        tensors = [(position, value) for position, value in enumerate(inputs) if isinstance(value, Tensor)]
        self.inputs = {id(value): position for position, value in tensors}
        self.memory = {value.untyped_storage()._cdata: position for position, value in tensors}
        self.dtypes = {position: value.dtype for position, value in tensors}
        self.offsets = {position: int(value.storage_offset()) for position, value in tensors}
        self.seen: dict[int, int] = {}
        self.leaders: dict[int, tuple[int, Held]] = {}
        self.results: list[Result] = []
        self.held: list[Held] = []

    def place(self, values: Sequence[Any]) -> None:
        for index, value in enumerate(values):
            self.results.append(self._result(index, value))

    def _check_alike(self, value: Tensor, dtype: torch.dtype) -> None:
        if value.dtype is not dtype:
            raise RuntimeError("a result is a view in another dtype")

    def _result(self, index: int, value: Any) -> Result:
        if not isinstance(value, Tensor):
            return Known(value)
        if id(value) in self.inputs:
            return Given(self.inputs[id(value)])
        if id(value) in self.seen:
            return Again(self.seen[id(value)])
        self.seen[id(value)] = index
        storage, size, stride = value.untyped_storage()._cdata, tuple(value.size()), tuple(value.stride())
        offset = int(value.storage_offset())
        if is_lazy(value):
            raise RuntimeError("a result is conjugated or negated by a bit")
        if storage in self.memory:
            of = self.memory[storage]
            self._check_alike(value, self.dtypes[of])
            return Part(of, True, size, stride, offset - self.offsets[of])
        if storage in self.leaders:
            of, leader = self.leaders[storage]
            leader.may_copy = False
            self._check_alike(value, leader.value.dtype)
            return Part(of, False, size, stride, offset - int(leader.value.storage_offset()))
        held = Held(
            value, value.untyped_storage(), index not in self.keeps and torch._debug_has_internal_overlap(value) == 0
        )
        self.leaders[storage] = index, held
        self.held.append(held)
        return held
