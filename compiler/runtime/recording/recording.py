"""A recording: what a graph launches, replayed by one call, with what it takes and how its results are handed out.

A replay reads and writes the very memory of its recording. So

    an input   either has to lie where it lay, which `fits` checks, or is copied to where it lay, unless it lies there:
               what another recording gave does so call by call
    a result   is memory of the recording, handed out under a tensor of its own; `is_free` says whether anything still
               holds what a replay would overwrite
    the rest   is memory of the recording too

A result that is an input, or lies in the memory of one, is made of the input that a call passes. Recordings share a
`Pool`. What one needs on its way is free again when it ends, and the next one may take it. So a replay may overwrite
results of other recordings, those that came to lie where it works. Which ones is known when they are recorded
(`Pool.add`), and no replay begins while somebody holds one of them.

A backward frees what its forward saved as it goes, and that memory is the pool's then. So forward waits until nobody
holds what lies there now. Backward wants what was saved to be its arguments' alone. Any other recording waits until
nobody holds what was saved. Memory that was lent this way is told by its address. Who holds such a tensor holds the
pool, but nothing keeps others from writing it.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import warnings
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef

from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.ir.loops.live_memory import Change
from assay.compiler.ir.tensors.layout.alignment import ALIGNED_BYTES
from assay.compiler.runtime.call import copy_each
from assay.compiler.runtime.recording import workspaces
from assay.compiler.runtime.recording.pool_layout import Block, Event, Freed, Returned, Segments, Taken, extension
from assay.compiler.torch_stubs import reinterpret_tensor as reinterpret

use_count: Callable[[int], int] = torch._C._storage_Use_Count
references: Callable[[object], int] = sys.getrefcount


def _references_in(values: Sequence[object], position: int) -> int:
    return sys.getrefcount(values[position])


ALONE = _references_in([object()], 0)
"""Python's references to what a list alone holds."""

LET_GO = 8
"""How many copies of a result in a row have to be gone by the next call, before it is handed out as it lies."""


class Tape(Protocol):
    """The launches of one run, recorded."""

    def record(self, run: GraphCall, inputs: list[Any], events: Sequence[Event]) -> Sequence[Any]:
        """What `run` returns for these inputs, which no later recording may take unless it is lent. Nothing need be
        computed yet. The `events` are what is expected of its blocks of `packing.LARGE_BYTES` and more.

        Raises: RuntimeError for what cannot be recorded.
        """
        ...

    def replay(self) -> None: ...

    def segments(self) -> list[tuple[int, int]]:
        """The memory of its pool so far, each from an address up to another: all that a replay may write of it."""
        ...

    def lend(self, storage: UntypedStorage) -> UntypedStorage:
        """The same memory, which the next recording of the pool may take once `storage` is gone. It does not go before
        who holds it."""
        ...


class CudaTape:
    """A CUDA graph, with the memory of a pool. One that `multiplies` calls cuBLAS, which works in the pool too."""

    def __init__(self, pool: Pool, multiplies: bool = False) -> None:
        self.pool, self.device, self.multiplies = pool, pool.device, multiplies
        self.graph = torch.cuda.CUDAGraph()
        self.replay = self.graph.replay

    def record(self, run: GraphCall, inputs: list[Any], events: Sequence[Event]) -> Sequence[Any]:
        pool = self.pool
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()  # what plain calls have returned is of no use to a pool
        try:
            if pool.memory is None:  # as long as one graph of a pool is there, the allocator knows it
                pool.memory = _nothing_recorded(self.device, pool.stream)
            before = torch.cuda.memory_reserved(self.device)
            identifier = pool.memory.pool()
            segments = _large_blocks(identifier)
            workspace = [Taken(WORKSPACE, workspaces.bytes_of(self.device))] if self.multiplies else []
            more = extension(segments, [*workspace, *events])

            def run_in_more() -> Sequence[Any]:
                if more:
                    _extend(self.device, segments, more)
                if self.multiplies:
                    workspaces.take()
                return run(inputs)

            with workspaces.of_the_pool(identifier):
                results = _captured(self.graph, self.device, pool.stream, run_in_more, identifier)
        except BaseException:
            pool.is_closed = True
            self._stop()
            _nothing_recorded(self.device, pool.stream)  # now the generator of random numbers knows that nobody records
            raise
        pool.taken_bytes += torch.cuda.memory_reserved(self.device) - before
        return results

    def _stop(self) -> None:
        """Tells the allocator that a recording is over, where CUDA has ended it before torch did.

        Else memory of other pools would not be given back any more, and never that of this one.
        """
        if self.pool.memory is None:
            return
        pool = self.pool.memory.pool()
        try:
            torch._C._cuda_endAllocateToPool(self.device, pool)
        except RuntimeError:  # it knows already
            return
        torch._C._cuda_releasePool(self.device, pool)
        _refused.append(self.graph)

    def segments(self) -> list[tuple[int, int]]:
        found = torch.cuda.memory_snapshot(self.graph.pool(), include_traces=False)
        pairs = [(each["address"], each["address"] + each["total_size"]) for each in found]
        return pairs or EVERYWHERE

    def lend(self, storage: UntypedStorage) -> UntypedStorage:
        lent = torch.as_tensor(_Lent(self, storage.data_ptr(), storage.nbytes()), device=f"cuda:{self.device}")
        return lent.untyped_storage()


WORKSPACE = -1
"""The number of the block that cuBLAS works in."""


def _large_blocks(pool: Any) -> Segments:
    found = torch.cuda.memory_snapshot(pool, include_traces=False)
    large = (each["blocks"] for each in found if each["segment_type"] == "large")
    return [[Block(each["address"], each["size"], each["state"] == "inactive") for each in blocks] for blocks in large]


def _extend(device: int, segments: Segments, size: int) -> None:
    """Adds a segment to the pool of what is being recorded. What is free there is held meanwhile, as the allocator adds
    nothing for a block that it has room for."""
    free = sorted((block.bytes for blocks in segments for block in blocks if block.is_free), reverse=True)
    held = [torch.empty(each, dtype=torch.uint8, device=f"cuda:{device}") for each in (*free, size)]
    del held


EVERYWHERE = [(0, 1 << 64)]
_refused: list[torch.cuda.CUDAGraph] = []
"""The graphs that CUDA did not record, which torch's other allocators may still ask whether memory is for them."""


class _Lent:
    """Memory of a recording by its address: torch holds this, and so the recording, while it holds the memory."""

    def __init__(self, tape: CudaTape, address: int, size: int) -> None:
        self.tape = tape
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


def _nothing_recorded(device: int, stream: object) -> torch.cuda.CUDAGraph:
    byte = torch.empty(1, dtype=torch.uint8, device=f"cuda:{device}")
    graph = torch.cuda.CUDAGraph()
    _captured(graph, device, stream, byte.zero_)
    return graph


def _captured(
    graph: torch.cuda.CUDAGraph, device: int, replayed_on: object, run: Callable[[], Any], pool: Any = None
) -> Any:
    """What `run` returns, its launches being recorded; in the memory of others, a `pool`."""
    stream, current = _stream(device, replayed_on), torch.cuda.current_stream(device)
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
def _stream(device: int, replayed_on: object) -> torch.cuda.Stream:
    """The stream that is recorded: always the same for graphs that are replayed on one stream, as libraries keep a
    workspace for each that they have seen, and replays use it."""
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


class Lying:
    """An input that lay in `held`, which another recording gave. One that lies elsewhere is copied to there, unless
    somebody holds what lies there. That memory stays as it is as long as there is this, or that recording."""

    __slots__ = ("held", "place", "pointer", "position")

    def __init__(self, position: int, value: Tensor, held: Held) -> None:
        self.position, self.held, self.pointer = position, held, value.data_ptr()
        self.place = tuple(value.size()), tuple(value.stride()), int(value.storage_offset())
        held.keepers += 1

    def __del__(self) -> None:
        self.held.leave()

    def is_there(self, value: Tensor) -> bool:
        return value.data_ptr() == self.pointer and not is_lazy(value)

    def memory(self) -> Tensor:
        """Where it is copied to."""
        return self.held.value.as_strided(*self.place)


@dataclass(slots=True, eq=False)
class Held:
    """A result in memory of the recording, copied out if it was held once too long and may be (`may_copy`). `own` are
    the recording's references to its storage, by tensors and by Python. What nobody but backward reads `may_lend`.

    It has no reference once the recording is gone, and those that read it where it lies. Of these `keepers` none is
    left then. `storage` is None, and a weak reference tells whether it is held.

    It is handed out without a copy again when `patience` copies in a row were let go before the next call. Where that
    was wrong, it takes twice as many the next time.
    """

    value: Tensor
    storage: UntypedStorage | None
    may_copy: bool
    may_lend: bool = False
    own: int = 0
    own_python: int = 0
    is_copied: bool = False
    is_lent: bool = False
    key: int = 0
    place: tuple[int, int] = (0, 0)
    left: StorageWeakRef | None = None
    keepers: int = 1
    is_whole: bool = False
    copy: StorageWeakRef | None = None
    let_go: int = 0
    patience: int = LET_GO

    @staticmethod
    def of(value: Tensor, may_copy: bool, may_lend: bool) -> Held:
        """A result in a storage that nobody else has told of: `place` is where that lies, up to an address."""
        storage = value.untyped_storage()
        first = storage.data_ptr()
        place = first, first + storage.nbytes()
        return Held(value, storage, may_copy, may_lend, key=storage._cdata, place=place)

    def count(self) -> None:
        """Takes the references that there are for the recording's own. What is no view of its dtype `is_whole`, as is
        what nobody asks whether it is one."""
        storage, base = self.storage, self.value._base
        self.is_whole |= base is None or base.dtype is not self.value.dtype
        del base
        self.own, self.own_python = use_count(self.key), sys.getrefcount(storage)

    def is_alive(self) -> bool:
        return bool(alive_of((self,)))

    def is_alone_in(self, args: Sequence[Any], positions: Sequence[int]) -> bool:
        """Whether the tensors at these positions are all that holds it."""
        return are_alone_in(args, ((self, positions),))

    def lend(self, tape: Tape, args: list[Any], positions: Sequence[int]) -> None:
        """Gives its memory to who records in the pool of `tape`: it goes with the tensors at these positions, in whose
        places there are others then. At no moment does it look as if nobody held it."""
        assert self.storage is not None
        storage = tape.lend(self.storage)
        value, held = _over(storage, self.value), [_over(storage, args[k]) for k in positions]
        self.own, self.own_python, self.may_lend, self.is_lent = -1, -1, False, True
        self.storage, self.value, self.key = storage, value, storage._cdata
        del storage, value
        self.count()
        self.own -= len(held)
        for k in positions:
            args[k] = held.pop(0)

    def leave(self) -> None:
        """A keeper is gone. After the last one who holds the result goes on doing so."""
        self.keepers -= 1
        if self.keepers:
            return
        assert self.storage is not None
        self.left = StorageWeakRef(self.storage)
        del self.value
        self.storage = None

    def handed(self) -> Tensor:
        """The result as a tensor of its own, which knows nothing of those before it."""
        if self.is_copied and not self._is_let_go():
            copy = torch.empty_strided(
                self.value.size(), self.value.stride(), dtype=self.value.dtype, device=self.value.device
            ).copy_(self.value)
            self.copy = StorageWeakRef(copy.untyped_storage())
            return copy
        if self.is_whole:
            return self.value.data
        base: Tensor = self.value._base.data  # type: ignore[union-attr]
        return base.as_strided(self.value.size(), self.value.stride(), self.value.storage_offset())

    def _is_let_go(self) -> bool:
        """Whether nobody has held its copies for long of late. It is not copied any more then."""
        if self.copy is None or not self.copy.expired():
            self.let_go = 0
            return False
        self.let_go += 1
        if self.let_go < self.patience:
            return False
        self.is_copied, self.copy, self.let_go, self.patience = False, None, 0, 2 * self.patience
        return True


def alive_of(results: Sequence[Held]) -> list[Held]:
    """Those of the results that somebody holds. Cost: 80 ns each, and a step of training asks for hundreds."""
    found = []
    for held in results:
        storage = held.storage
        if storage is None:
            if not held.left.expired():  # type: ignore[union-attr]
                found.append(held)
        elif use_count(held.key) != held.own or references(storage) != held.own_python:
            found.append(held)
    return found


def are_alone_in(args: Sequence[Any], results: Iterable[tuple[Held, Sequence[int]]]) -> bool:
    """Whether the tensors at these positions are all that holds the results. Cost: 1 us each."""
    for held, positions in results:
        if held.storage is None or use_count(held.key) != held.own + len(positions):
            return False
        if any(args[k]._use_count() != 1 or references(args[k]) != ALONE for k in positions):
            return False
    return True


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
        if self.is_saved:
            return reinterpret(base, self.size, self.stride, self.offset)
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


Borrowed = dict[int, tuple[Held, tuple[int, ...]]]
"""What a recording was lent, each with the positions of the inputs that lie in it."""


@dataclass(slots=True)
class Holding:
    """The results of a recording that lie in its pool, where other recordings may write. `out` are those that somebody
    may hold: all when it has run, and fewer whenever one is found to be gone.

    `clashes` counts the calls of other recordings, and of its own, that could not be replayed for what was held. Where
    it `yields`, its results are copied out once one has been held too long.
    """

    held: list[Held]
    yields: bool
    clashes: int = 0
    out: list[Held] = field(default_factory=list)

    def is_in_the_way(self, within: Collection[Held]) -> bool:
        """Whether somebody holds any of these results. What is found to be gone nobody asks about again, so that many
        recordings that ask for the same results take a step's time once."""
        self.out = alive_of(self.out)
        alive = [held for held in self.out if held in within]
        if not alive:
            return False
        if self.yields:
            for held in alive:
                held.is_copied = held.may_copy
        if not all(held.is_copied for held in alive):
            self.clashes += 1
        return True

    def is_dead(self) -> bool:
        """Whether there is nothing left of it."""
        return all(held.storage is None and not held.is_alive() for held in self.held)

    def leave(self) -> None:
        for held in self.held:
            held.leave()


@dataclass(slots=True, weakref_slot=True)
class Recording:
    """One recording: where its inputs have to lie, lie or are copied to, and how its results are handed out.

    `rivals` are other recordings of the pool, with those of their results that a replay of this one may overwrite.
    `borrowed` is what it was lent by the recording whose values it reads. `consumed` are the results of that
    recording, and those of them that somebody may still hold when this one has run.
    """

    tape: Tape
    pool: Pool
    fixed: list[int]
    pointers: list[int]
    copied: list[Copied]
    lying: list[Lying]
    results: list[Result]
    holding: Holding
    borrowed: Borrowed = field(default_factory=dict)
    rivals: list[tuple[Holding, frozenset[Held]]] = field(default_factory=list)
    misses: int = 0
    is_blocked: bool = False
    has_lent: bool = False
    consumed: tuple[Holding, list[Held]] | None = None
    stream: object = field(init=False)

    def __post_init__(self) -> None:
        self.stream = self.pool.stream

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether all that has to lie where it lay does."""
        fixed, pointers = self.fixed, self.pointers
        if not fixed:
            return True
        if args[fixed[0]].data_ptr() != pointers[0]:
            return False
        return [args[position].data_ptr() for position in fixed] == pointers

    def replayed(self, args: list[Any]) -> tuple[Any, ...] | None:
        """What a call that `fits` returns; None if it cannot be replayed."""
        in_use = self.pool.in_use
        if not in_use.acquire(blocking=False):  # another thread may be about to take the results of a recording
            return None
        try:
            if self.is_free() and (not self.borrowed or self.may_take(args)):
                astray = self.astray(args)
                if not alive_of([one.held for one in astray]):
                    self.misses = 0
                    return self.run(args, astray)
        finally:
            in_use.release()
        return None

    def is_free(self) -> bool:
        """Whether nobody holds what a replay would overwrite. What is held is copied out from now on, if it may be."""
        holding = self.holding
        self.is_blocked = False
        if holding.out:
            holding.out = alive_of(holding.out)
            if holding.out:
                for held in holding.out:
                    held.is_copied = held.may_copy
                return False
        for rival, within in self.rivals:
            if rival.out and rival.is_in_the_way(within):
                self.is_blocked = True  # the others are to know of it, too
        return not self.is_blocked

    def is_stale(self) -> bool:
        """Whether what it was lent is no recording's any more."""
        return any(held.storage is None for held, _ in self.borrowed.values())

    def may_take(self, args: Sequence[Any]) -> bool:
        """Whether what it was lent is its arguments' alone."""
        if are_alone_in(args, self.borrowed.values()):
            return True
        self.holding.clashes += not self.is_stale()
        return False

    def astray(self, args: Sequence[Any]) -> list[Lying]:
        """The inputs that do not lie where others of them lay."""
        return [one for one in self.lying if not one.is_there(args[one.position])]

    def copies(self) -> set[int]:
        """The results that are copied out."""
        return {index for index, result in enumerate(self.results) if type(result) is Held and result.is_copied}

    def run(self, args: list[Any], astray: Sequence[Lying] = ()) -> tuple[Any, ...]:
        if self.copied or astray:
            into = [one.to for one in self.copied]
            values = [one.source(args[one.position]) for one in self.copied]
            for one in astray:
                into.append(one.memory())
                values.append(args[one.position])
            with torch.no_grad():
                copy_each(into, values)
        holding = self.holding
        holding.out = holding.held
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
        if self.consumed is not None:
            lender, rest = self.consumed
            lender.out = rest
        return tuple(handed)


class Pool:
    """Memory for recordings that are replayed on one stream of a device, one after the other.

    The allocator gives a recording any memory of the pool that is free by then; what it takes on its way is free again
    when it ends. So a replay may write all memory that the pool had when its recording was made but what a result of
    another one kept from it all that while.

    No recording is added to a pool that `is_closed`. `memory` is what the tapes have of it.
    """

    def __init__(self, device: int, stream: object) -> None:
        self.device, self.stream = device, stream
        self.in_use = threading.Lock()
        self.is_closed = False
        self.taken_bytes = 0
        self.memory: Any = None
        self.holdings: list[Holding] = []
        self.recordings: list[tuple[weakref.ref[Recording], list[tuple[int, int]]]] = []
        _pools.add(self)

    def has_lent(self, value: Tensor) -> bool:
        """Whether the memory of a tensor may be taken, though somebody holds it."""
        key = value.untyped_storage()._cdata
        lent = (held for holding in self.holdings for held in holding.held if held.is_lent and held.key == key)
        return any(held.is_alive() for held in lent)

    def add(self, recording: Recording) -> None:
        """Makes the recordings that are there and a new one respect each other's results."""
        self._forget()
        mine = {held for held, _ in recording.borrowed.values()}
        for holding in self.holdings:
            lent = frozenset(held for held in holding.held if held.is_lent and held not in mine)
            if lent:
                recording.rivals.append((holding, lent))
        for reference, segments in self.recordings:
            other = reference()
            within = frozenset(held for held in recording.holding.held if _is_within(segments, held.place))
            if other is not None and within:
                other.rivals.append((recording.holding, within))
        self.holdings.append(recording.holding)
        self.recordings.append((weakref.ref(recording), sorted(recording.tape.segments())))
        weakref.finalize(recording, recording.holding.leave).atexit = False

    def free_bytes(self) -> int:
        """The memory in which no result of a recording lies."""
        each = (held for holding in self.holdings for held in holding.held if held.storage is not None)
        return max(0, self.taken_bytes - sum(held.place[1] - held.place[0] for held in each if not held.is_lent))

    def _forget(self) -> None:
        """Leaves out what nothing is left of."""
        self.holdings = [holding for holding in self.holdings if not holding.is_dead()]
        self.recordings = [(reference, at) for reference, at in self.recordings if reference() is not None]
        left = {id(holding) for holding in self.holdings}
        for reference, _ in self.recordings:
            if (recording := reference()) is not None:
                recording.rivals = [pair for pair in recording.rivals if id(pair[0]) in left]


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: weakref.WeakValueDictionary[tuple[int, object, bool], Pool] = weakref.WeakValueDictionary()
"""The pools that all may use, by device, stream, and whether they are for what is held long."""


def pool_of(device: int, stream: object, is_held: bool = False) -> Pool:
    """The pool of the recordings that are replayed on a stream, or of those whose results are held over others; it is
    there as long as one of them is."""
    pool = _shared.get((device, stream, is_held))
    if pool is None or pool.is_closed:
        pool = _shared[device, stream, is_held] = Pool(device, stream)
    return pool


def recorded_bytes(device: int) -> int:
    """The memory of a device that the pools of recordings take which are still there."""
    return sum(pool.taken_bytes for pool in list(_pools) if pool.device == device)


def free_bytes(device: int) -> int:
    """What of that another recording could take."""
    return sum(pool.free_bytes() for pool in list(_pools) if pool.device == device)


def _is_within(segments: Sequence[tuple[int, int]], place: tuple[int, int]) -> bool:
    """Whether a place lies in one of these, which are sorted, in part."""
    first, last = place
    at = bisect_right(segments, (first, 1 << 65))
    return (at > 0 and segments[at - 1][1] > first) or (at < len(segments) and segments[at][0] < last)


_lenders: weakref.WeakValueDictionary[int, Recording] = weakref.WeakValueDictionary()
"""The recordings that have something to lend, by the storages of that."""
_givers: weakref.WeakValueDictionary[int, Recording] = weakref.WeakValueDictionary()
"""The recordings of results, by the storages of these, also of what they have lent."""


def is_recorded(value: Tensor) -> bool:
    """Whether a tensor lies in what a recording gave."""
    return value.untyped_storage()._cdata in _givers


def _given_before(value: Tensor, pool: Pool) -> Held | None:
    """The result of a recording of a pool in which a tensor lies, with each element once; None if there is none, or its
    memory may be another's when it is read. What a forward saved may lie there too, if that was lent before: only a
    recording of the same pool waits until nobody holds that."""
    storage = value.untyped_storage()._cdata
    giver = _givers.get(storage)
    if giver is None or giver.pool is not pool or is_lazy(value) or torch._debug_has_internal_overlap(value) != 0:
        return None
    held = next((held for held in giver.holding.held if held.key == storage), None)
    return None if held is None or held.may_lend or held.is_lent or held.value.dtype is not value.dtype else held


def lender_of(args: Sequence[Any], positions: Collection[int], stream: object) -> Recording | None:
    """The recording that may lend a backward what was saved at these positions, in whose pool this is recorded then;
    None if there is none, or it has lent that already."""
    storages = (args[k].untyped_storage()._cdata for k in positions if isinstance(args[k], Tensor))
    found = {id(lender): lender for storage in storages if (lender := _lenders.get(storage)) is not None}
    lender = found.popitem()[1] if len(found) == 1 else None
    if lender is None or lender.has_lent or lender.pool.is_closed or lender.pool.stream != stream:
        return None
    return lender


def _left_of(holding: Holding, borrowed: Borrowed, results: Sequence[Result]) -> list[Held]:
    """Of what a recording gave, what was not lent to another one alone, or lies in its results."""
    shown = {result.position for result in results if type(result) is Given}
    shown |= {result.of for result in results if type(result) is Part and result.is_input}
    gone = {held for held, positions in borrowed.values() if shown.isdisjoint(positions)}
    return [held for held in holding.held if held not in gone]


def _lent_by(lender: Recording, args: Sequence[Any], positions: Collection[int]) -> Borrowed:
    """What a recording can lend: what the inputs at these positions hold alone."""
    helds = {held.key: held for held in lender.holding.held if held.may_lend}
    within: dict[int, list[int]] = {}
    for k in positions:
        if isinstance(args[k], Tensor) and (storage := args[k].untyped_storage()._cdata) in helds:
            within.setdefault(storage, []).append(k)
    return {s: (helds[s], tuple(at)) for s, at in within.items() if helds[s].is_alone_in(args, at)}


def _take_from(lender: Recording, borrowed: Borrowed, args: list[Any]) -> None:
    """Has a recording lend what was borrowed of it."""
    for held, positions in borrowed.values():
        _lenders.pop(held.key, None)
        _givers.pop(held.key, None)
        held.lend(lender.tape, args, positions)
        _givers[held.key] = lender


@dataclass(frozen=True, slots=True)
class Treatment:
    """What becomes of the inputs and results of a recording, each by its position.

    Of the inputs, those that `stays` have to lie there again, those that are `unread` may lie anywhere, and those that
    `moved` are copied. Others that lie in what another recording gave are expected there. Of the results, those that it
    `keeps` are never copied out, as who reads them wants them where they lie; `copies` always are. `gradients` are
    handed out as no views, whatever they are.

    `yields`: results are copied out once one has been held too long. `changes` are those of its large blocks.
    """

    stays: Collection[int] = ()
    unread: Collection[int] = ()
    moved: Collection[int] = ()
    keeps: Collection[int] = ()
    copies: Collection[int] = ()
    gradients: Collection[int] = ()
    yields: bool = True
    changes: Sequence[Change] = ()


PLAIN = Treatment()
"""Every input is copied, and results are handed out as they lie."""


def record(
    plain: GraphCall,
    args: list[Any],
    tape: Tape,
    pool: Pool,
    treated: Treatment = PLAIN,
    lender: Recording | None = None,
) -> Recording:
    """A recording for inputs like `args`.

    A `lender` of the same pool lends it what it saved; `args` are then tensors at the same places that own nothing.

    Raises: RuntimeError for what cannot be recorded.
    """
    borrowed = {} if lender is None else _lent_by(lender, args, treated.stays)
    fixed = [position for position in sorted(treated.stays) if isinstance(args[position], Tensor)]
    pointers = [args[position].data_ptr() for position in fixed]
    inputs, copied, lying = _brought(args, {*treated.stays, *treated.unread}, treated.moved, pool)
    placing = _Placing(inputs, treated.keeps, {k for _, positions in borrowed.values() for k in positions})
    if lender is not None:
        _take_from(lender, borrowed, args)
    placing.place(tape.record(plain, inputs, _events(treated.changes, borrowed)))
    for index in treated.gradients:
        result = placing.results[index]
        if type(result) is Held:
            result.is_whole = True
    for held in placing.held:  # now that no view of the recorded run is left
        held.count()
    for index in treated.copies:
        result = placing.results[index]
        if type(result) is Held:
            result.is_copied = result.may_copy
    holding = Holding(placing.held, treated.yields)
    recording = Recording(tape, pool, fixed, pointers, copied, lying, placing.results, holding, borrowed)
    pool.add(recording)
    if lender is not None:
        lender.has_lent = True
        recording.consumed = lender.holding, _left_of(lender.holding, borrowed, placing.results)
    _lenders.update({held.key: recording for held in placing.held if held.may_lend})
    _givers.update({held.key: recording for held in placing.held})
    return recording


def _brought(
    args: Sequence[Any], left: Collection[int], moved: Collection[int], pool: Pool
) -> tuple[list[Any], list[Copied], list[Lying]]:
    """What a recording reads in the places of its inputs, which of them are copied there, and which lie in what another
    recording gave; those at the positions `left` are neither.

    Raises: RuntimeError for an input that overlaps itself.
    """
    inputs, copied, lying = list(args), list[Copied](), dict[Held, Lying]()
    for position, value in enumerate(args):
        if not isinstance(value, Tensor) or position in left:
            continue
        given = None if position in moved else _given_before(value, pool)
        if given is not None and given not in lying:  # two of them might overlap there, and not elsewhere
            lying[given] = Lying(position, value, given)
            continue
        inputs[position], made = _copied(position, value)
        copied.append(made)
    return inputs, copied, list(lying.values())


def _events(changes: Sequence[Change], borrowed: Borrowed) -> list[Event]:
    """What a recording takes and gives back, what it was lent too."""
    lent = {position: held for held, positions in borrowed.values() for position in positions}
    left = {held: len(positions) for held, positions in borrowed.values()}
    numbers = dict[str, int]()
    events = list[Event]()
    for block, size in changes:
        if isinstance(block, str):
            number = numbers.setdefault(block, len(numbers))
            events.append(Taken(number, size) if size else Freed(number))
        elif block in lent:
            held = lent[block]
            left[held] -= 1
            events += [] if left[held] else [Returned(held.place[0])]
    return events


def _over(storage: UntypedStorage, like: Tensor) -> Tensor:
    """A tensor that lies in its storage as another one does in its own."""
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(
        storage, like.storage_offset(), like.size(), like.stride()
    )


def _copied(position: int, value: Tensor) -> tuple[Tensor, Copied]:
    """Memory for an input, in its layout, and as far from where 16 bytes begin.

    Some libraries read as many elements at a time as their address allows, and draw random numbers so.

    Raises: RuntimeError for a layout in which elements overlap otherwise than by being expanded.
    """
    pairs = enumerate(zip(value.size(), value.stride(), strict=True))
    narrowed = tuple(dim for dim, (size, stride) in pairs if size > 1 and not stride)
    offset = value.data_ptr() % ALIGNED_BYTES // value.itemsize
    memory = torch.empty(offset + _reach(value), dtype=value.dtype, device=value.device)
    own = memory.as_strided(value.size(), value.stride(), offset)
    each = Copied(position, own, narrowed).source(own)
    if each.numel() and torch._debug_has_internal_overlap(each) != 0:
        raise RuntimeError("an input overlaps itself")
    return own, Copied(position, each, narrowed)


def _reach(value: Tensor) -> int:
    """The elements of memory from a tensor's first to its last."""
    if not value.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(value.size(), value.stride(), strict=True))


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
        held = Held.of(value, may_copy, is_kept and value.numel() > 0)
        self.leaders[storage] = index, held
        self.held.append(held)
        return held
