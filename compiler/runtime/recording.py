"""A recording: what a graph launches, replayed by one call, with what it takes and how its results are handed out.

A replay reads and writes the very memory of its recording. So

    an input   either has to lie where it lay, which `fits` checks, or is copied to where it lay
    a result   is memory of the recording, handed out under a tensor of its own; `is_free` says whether anything still
               holds what a replay would overwrite
    the rest   is memory of the recording too

A result that is an input, or lies in the memory of one, is made of the input that a call passes.

A backward is recorded in the memory of the forward whose values it reads, if it can be (`shares`). It then writes what
forward used on its way, and what forward saved, behind its last use; so forward waits until nobody holds a gradient,
and backward wants what was saved to be its arguments' alone. Memory that was lent this way is told by its address: who
holds such a tensor holds the memory, but nothing keeps others from writing it.
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
from torch.multiprocessing.reductions import StorageWeakRef

from compiler.ir.roles import GraphCall

use_count: Callable[[int], int] = torch._C._storage_Use_Count  # type: ignore[attr-defined]


def _references_in(values: Sequence[object], position: int) -> int:
    return sys.getrefcount(values[position])


ALONE = _references_in([object()], 0)
"""Python's references to what a list alone holds."""


class Tape(Protocol):
    """The launches of one run, recorded."""

    def record(self, run: GraphCall, inputs: list[Any]) -> Sequence[Any]:
        """What `run` returns for these inputs, which no later recording may overwrite unless it is lent. Nothing need
        be computed yet.

        Raises: RuntimeError for what cannot be recorded.
        """
        ...

    def replay(self) -> None: ...

    def lend(self, storage: UntypedStorage) -> UntypedStorage:
        """The same memory, which a recording that shares it may use again once `storage` is gone. It does not go before
        who holds it."""
        ...


_taken: Counter[int] = Counter()


def recorded_bytes(device: int) -> int:
    """The memory of a device that all recordings take which are still there."""
    return _taken[device]


def _give_back(device: int, taken: int) -> None:
    _taken[device] -= taken


class CudaTape:
    """A CUDA graph, with memory of its own, or in that of another, `beside` which it is recorded."""

    def __init__(self, device: int, beside: CudaTape | None = None) -> None:
        self.device, self.beside = device, beside
        self.graph = torch.cuda.CUDAGraph()
        self.replay = self.graph.replay

    def record(self, run: GraphCall, inputs: list[Any]) -> Sequence[Any]:
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()  # what plain calls have returned is of no use to a memory of its own
        before = torch.cuda.memory_reserved(self.device)
        try:
            pool = None if self.beside is None else self.beside.graph.pool()
            results = _captured(self.graph, self.device, lambda: run(inputs), pool)
        except BaseException:
            self._record_nothing()  # at whose end the generator of random numbers knows that nobody records
            raise
        taken = torch.cuda.memory_reserved(self.device) - before
        _taken[self.device] += taken
        weakref.finalize(self, _give_back, self.device, taken)
        return results  # type: ignore[no-any-return]

    def lend(self, storage: UntypedStorage) -> UntypedStorage:
        lent = torch.as_tensor(_Lent(self, storage.data_ptr(), storage.nbytes()), device=f"cuda:{self.device}")
        return lent.untyped_storage()

    def _record_nothing(self) -> None:
        byte = torch.empty(1, dtype=torch.uint8, device=f"cuda:{self.device}")
        _captured(torch.cuda.CUDAGraph(), self.device, byte.zero_)


class _Lent:
    """Memory of a recording by its address: torch holds this, and so the recording, while it holds the memory."""

    def __init__(self, tape: CudaTape, address: int, size: int) -> None:
        self.tape = tape
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


def _captured(graph: torch.cuda.CUDAGraph, device: int, run: Callable[[], Any], pool: Any = None) -> Any:
    """What `run` returns, its launches being recorded; in the memory of others, a `pool`."""
    stream, current = _stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    collects = gc.isenabled()
    gc.disable()  # what a collection frees may call what must not be called meanwhile
    try:
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a recording that launches nothing
            graph.capture_begin(pool, capture_error_mode="thread_local")
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
    the recording's references to its storage, by tensors and by Python. What nobody but backward reads `may_lend`."""

    value: Tensor
    storage: UntypedStorage
    may_copy: bool
    may_lend: bool = False
    own: tuple[int, int] = (0, 0)
    is_copied: bool = False

    def references(self) -> tuple[int, int]:
        return use_count(self.storage._cdata), sys.getrefcount(self.storage)

    def is_alive(self) -> bool:
        return self.references() != self.own

    def is_alone_in(self, args: Sequence[Any], positions: Sequence[int]) -> bool:
        """Whether the tensors at these positions are all that holds it."""
        if use_count(self.storage._cdata) != self.own[0] + len(positions):
            return False
        return all(args[k]._use_count() == 1 and _references_in(args, k) == ALONE for k in positions)

    def lend(self, tape: Tape, args: list[Any], positions: Sequence[int]) -> None:
        """Gives its memory to who records beside `tape`: it goes with the tensors at these positions, in whose places
        there are others then. At no moment does it look as if nobody held it."""
        storage = tape.lend(self.storage)
        value, held = _over(storage, self.value), [_over(storage, args[k]) for k in positions]
        self.own, self.may_lend = (-1, -1), False
        self.storage, self.value = storage, value
        del storage, value
        count, python = self.references()
        self.own = count - len(held), python
        for k in positions:
            args[k] = held.pop(0)

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
    """A result that lies in the memory of an input or of another result: `offset` elements behind where that begins.
    One that `is_saved` is no view of it, so that it may be lent."""

    of: int
    is_input: bool
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    is_saved: bool = False

    def handed(self, base: Tensor) -> Tensor:
        part = base.as_strided(self.size, self.stride, base.storage_offset() + self.offset)
        return part.data if self.is_saved else part


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


Borrowed = dict[int, tuple[Held, tuple[int, ...]]]
"""What a recording was lent, each with the positions of the inputs that lie in it."""


@dataclass(slots=True, weakref_slot=True)
class Recording:
    """One recording: where its inputs have to lie or are copied to, and how its results are handed out.

    `shared` are the results of the one that was recorded in its memory, `borrowed` what this one was lent by the one
    that it lies `beside`; `clashes` counts the calls that could not be replayed for that.
    """

    tape: Tape
    fixed: list[int]
    pointers: list[int]
    copied: list[Copied]
    results: list[Result]
    held: list[Held] = field(default_factory=list)
    misses: int = 0
    beside: Recording | None = None
    borrowed: Borrowed = field(default_factory=dict)
    shared: list[Held] | None = None
    clashes: int = 0

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the inputs lie where they lay."""
        return [args[position].data_ptr() for position in self.fixed] == self.pointers

    def is_free(self) -> bool:
        """Whether nobody holds what a replay would overwrite. What is held is copied out from now on, if it may be."""
        alive = [held for held in self.held if held.is_alive()]
        for held in alive:
            held.is_copied = held.may_copy
        if self.shared is not None and any(held.is_alive() for held in self.shared):
            self.clashes += 1
            return False
        return not alive

    def may_take(self, args: Sequence[Any]) -> bool:
        """Whether what it was lent is its arguments' alone."""
        if all(held.is_alone_in(args, positions) for held, positions in self.borrowed.values()):
            return True
        assert self.beside is not None
        self.beside.clashes += 1
        return False

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


_lenders: weakref.WeakValueDictionary[int, Recording] = weakref.WeakValueDictionary()
"""The recordings that have something to lend, by the storages of that."""


def lender_of(args: Sequence[Any], positions: Collection[int]) -> Recording | None:
    """The recording whose memory a backward may share that takes what was saved at these positions; None if there is
    none, or another one shares it already."""
    storages = (args[k].untyped_storage()._cdata for k in positions if isinstance(args[k], Tensor))
    found = {id(lender): lender for storage in storages if (lender := _lenders.get(storage)) is not None}
    lender = found.popitem()[1] if len(found) == 1 else None
    return lender if lender is not None and lender.shared is None else None


def _lent_by(lender: Recording, args: Sequence[Any], positions: Collection[int]) -> Borrowed:
    """What a recording can lend: what the inputs at these positions hold alone."""
    helds = {held.storage._cdata: held for held in lender.held if held.may_lend}
    within: dict[int, list[int]] = {}
    for k in positions:
        if isinstance(args[k], Tensor) and (storage := args[k].untyped_storage()._cdata) in helds:
            within.setdefault(storage, []).append(k)
    return {s: (helds[s], tuple(at)) for s, at in within.items() if helds[s].is_alone_in(args, at)}


def record(
    plain: GraphCall,
    args: list[Any],
    tape: Tape,
    *,
    stays: Collection[int] = (),
    keeps: Collection[int] = (),
    copies: Collection[int] = (),
    beside: Recording | None = None,
    lends: bool = True,
) -> Recording:
    """A recording for inputs like `args`, of which those at the positions `stays` have to lie there again. The results
    at the positions `keeps` are never copied out, as who reads them wants them where they lie; those at `copies` are.
    It shares the memory of the recording `beside`, beside whose tape that of this one lies; `args` are then tensors at
    the same places that own nothing. With `lends` another recording may share its own.

    Raises: RuntimeError for what cannot be recorded.
    """
    borrowed = {} if beside is None else _lent_by(beside, args, stays)
    fixed = [position for position in sorted(stays) if isinstance(args[position], Tensor)]
    pointers = [args[position].data_ptr() for position in fixed]
    copied, inputs = list[Copied](), list(args)
    for position in range(len(args)):
        if isinstance(args[position], Tensor) and position not in stays:
            inputs[position], made = _copied(position, args[position])
            copied.append(made)
    placing = _Placing(inputs, keeps, {k for _, positions in borrowed.values() for k in positions})
    for held, positions in borrowed.values():
        held.lend(beside.tape, args, positions)  # type: ignore[union-attr]
    placing.place(tape.record(plain, inputs))
    for held in placing.held:  # now that no view of the recorded run is left
        held.own = held.references()
    for index in copies:
        result = placing.results[index]
        if type(result) is Held:
            result.is_copied = result.may_copy
    recording = Recording(tape, fixed, pointers, copied, placing.results, placing.held, 0, beside, borrowed)
    if beside is not None:
        beside.shared = placing.held
    elif lends:
        _lenders.update({held.storage._cdata: recording for held in placing.held if held.may_lend})
    return recording


def _over(storage: UntypedStorage, like: Tensor) -> Tensor:
    """A tensor that lies in its storage as another one does in its own."""
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(
        storage, like.storage_offset(), like.size(), like.stride()
    )


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
    """How results are handed out, by what each is and whose memory it has. The inputs that are `lent` may go meanwhile;
    what they were is never mistaken for what came after them."""

    def __init__(self, inputs: Sequence[Any], keeps: Collection[int], lent: Collection[int] = ()) -> None:
        self.keeps = keeps
        tensors = [(position, value) for position, value in enumerate(inputs) if isinstance(value, Tensor)]
        self.stay = [value for position, value in tensors if position not in lent]
        self.were = [StorageWeakRef(value.untyped_storage()) for position, value in tensors if position in lent]
        self.inputs = {id(value): (position, weakref.ref(value)) for position, value in tensors}
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
        given = self.inputs.get(id(value))
        if given is not None and given[1]() is value:
            return Given(given[0])
        if id(value) in self.seen:
            lies_in = self.leaders.get(value.untyped_storage()._cdata)
            if lies_in is not None:
                lies_in[1].may_lend &= index in self.keeps
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
            leader.may_lend &= index in self.keeps
            self._check_alike(value, leader.value.dtype)
            at = offset - int(leader.value.storage_offset())
            return Part(of, False, size, stride, at, leader.may_lend)
        is_kept = index in self.keeps
        may_copy = not is_kept and torch._debug_has_internal_overlap(value) == 0
        held = Held(value, value.untyped_storage(), may_copy, is_kept and value.numel() > 0)
        self.leaders[storage] = index, held
        self.held.append(held)
        return held
