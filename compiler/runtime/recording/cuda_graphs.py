"""CUDA graphs: what a graph launches is recorded once and replayed by one call, where that does what a call does.

    plain calls -> (timed calls) -> a recording -> replays, and plain calls wherever a replay would not be the same

A graph whose parameters have storages that are freed, and filled again elsewhere, as FSDP's have, is not recorded.
Parameters, buffers, what forward saved and what the graph itself writes have to lie where they lay. What else the user
passes, and tangents, are copied to where they lay, unless another recording gave them and they lie there. A graph that
is called with several sets of parameters, as by layers that are compiled one by one, is recorded for each.

While anything still holds a result that a replay would overwrite (a gradient that is accumulated into, the last call's
loss), nothing is replayed. That call runs plainly, and from then on this result is copied out. On another stream than
that of the recording calls run plainly.

All recordings that are replayed on one stream have one pool of memory, for all graphs and all sizes. What one needs on
its way others use too. What a forward saved is free again when its backward has run.

Some graphs cannot stay in that pool, and are recorded again in another one, which is counted:

- a graph whose results are held time and again while others are to be replayed, as gradients that are kept over
  forward
- a graph that walks what was saved twice
- a graph that cannot be replayed because of what others hold

Backwards go to a pool for such backwards. What cannot stay there either, and all else, gets a pool of its own.

What a replay would not do (ask for a value, run the user's code) is found before (`reason_against`), and such a graph
is never recorded. Nor is one that CUDA refuses to record, or that writes an input which moves from call to call. The
reasons are counted, and said where the user has asked for recordings.

By default a graph is recorded where it waits for its host, as timed in two calls: where the device is the slower one, a
recording would only hold memory.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.multiprocessing.reductions import StorageWeakRef

from assay.compiler.ir.graph.roles import (
    Buffer,
    Gradient,
    GraphCall,
    InputRole,
    OutputRole,
    Parameter,
    Program,
    Saved,
    Written,
)
from assay.compiler.ir.graph.writes.write_checks import LAUNCHES
from assay.compiler.ir.loops.kernel import Step
from assay.compiler.ir.loops.live_memory import Change, changes
from assay.compiler.ir.typed_nodes import schema_of
from assay.compiler.journal import count_apart, count_recorded, count_replayed, count_unrecorded
from assay.compiler.machine import number
from assay.compiler.runtime.recording.pool_layout import LARGE_BYTES
from assay.compiler.runtime.recording.recording import (
    CudaTape,
    Pool,
    Recording,
    Tape,
    Treatment,
    free_bytes,
    is_lazy,
    is_recorded,
    lender_of,
    pool_of,
    record,
    recorded_bytes,
)

PLAIN_CALLS = 1
"""Calls before any is timed or recorded: libraries choose their kernels and take their workspace in the first."""
TIMED_CALLS = 2
"""Calls that are timed, and one more where they do not agree: other work of the host disturbs one now and then."""
HOST_BOUND = 1.25
"""A call waits for its host if the device is done after so many times what launching takes."""
MOST_MISSES = 3
"""Calls in a row that cannot be replayed, for each set of parameters, before the graph is recorded anew."""
MOST_CLASHES = 2
"""Calls that cannot be replayed for what is held of a graph before that has another pool."""
MOST_RECORDINGS = 4
"""Recordings of a graph for inputs of the same sizes."""
MOST_SIZES = 8
"""Sizes of inputs that a graph is recorded for; for more of them it runs plainly."""
MOST_PLACES = 64
"""Sets of parameters that a graph is recorded for with inputs of the same sizes."""
MOST_HOMES = 4096
"""Storages that a graph remembers the places of, before it forgets those that are gone."""
MOVING = "it writes an input that moves"
REFILLED = "the memory of its parameters is freed, and filled again elsewhere"
MOST_OF_MEMORY = 1 / 8
"""The share of a device's memory that recordings may hold together when nobody has asked for them."""

_lock = threading.Lock()
"""Held while a graph is recorded: on one stream there is one recording at a time."""


@dataclass(frozen=True, slots=True)
class _Lay:
    """Where a tensor lay; `is_recorded` in the memory of a recording."""

    pointer: int
    storage: StorageWeakRef
    is_recorded: bool

    @staticmethod
    def of(value: Tensor) -> _Lay:
        return _Lay(value.data_ptr(), StorageWeakRef(value.untyped_storage()), is_recorded(value))

    def is_there(self) -> bool:
        return not self.storage.expired()


@dataclass(slots=True, eq=False)
class _Place:
    """The calls of a graph with inputs of certain sizes and one set of parameters. `apart` counts how often a recording
    could not stay where it was for what somebody held. `lay` has where the last call that was no replay found what has
    to lie still, `follower` the place of the call that came after the last one here."""

    calls: int = 0
    recording: Recording | None = None
    recordings: int = 0
    lay: dict[int, _Lay] = field(default_factory=dict)
    stays: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    timed: list[tuple[Any, Any, float]] = field(default_factory=list)
    is_plain: bool = False
    apart: int = 0
    follower: _Place | None = None

    def fits(self, args: Sequence[Any]) -> bool:
        return self.recording is not None and self.recording.fits(args)

    def is_of(self, args: Sequence[Any]) -> bool:
        """Whether a call is of this place: of what lay here, and is still there, it has no less than it lacks. Where
        forward was replayed, and now is not, what it saved says nothing."""
        here = lacking = 0
        is_lent = self.is_lent()
        for position, lay in self.lay.items():
            value = args[position]
            if value.data_ptr() == lay.pointer:
                here += 1
            elif (lay.is_there() or (lay.is_recorded and is_lent)) and lay.is_recorded == is_recorded(value):
                lacking += 1
        return here >= lacking

    def waits_for_host(self) -> bool | None:
        """Whether most of the calls that were timed wait for the host; None where another one has to tell."""
        if len(self.timed) < TIMED_CALLS:
            return None
        waiting = sum(map(_waits_for_host, self.timed))
        is_undecided = self.timed and 2 * waiting == len(self.timed)
        return None if is_undecided else 2 * waiting >= len(self.timed)

    def is_lent(self) -> bool:
        """Whether there is a recording in the memory of what a forward saved, which its own storages have no more."""
        return self.recording is not None and bool(self.recording.borrowed) and not self.recording.is_stale()

    def is_gone(self) -> bool:
        """Whether no call can be of this place any more: nothing is left of what lay here."""
        return bool(self.lay) and not self.is_lent() and not any(lay.is_there() for lay in self.lay.values())


@dataclass(slots=True)
class _Sizes:
    """The calls of a graph with inputs of certain sizes. `last` is where the last one was; `is_plain`: the device takes
    longer than its host, whatever the parameters are; `is_full`: there were more sets of parameters than places."""

    places: list[_Place] = field(default_factory=lambda: [_Place()])
    last: _Place = field(init=False)
    is_plain: bool = False
    is_full: bool = False

    def __post_init__(self) -> None:
        self.last = self.places[0]

    def place_of(self, args: Sequence[Any]) -> tuple[_Place, bool]:
        """Where a call is, and whether all lies there as it was recorded. In the order of the calls before, it is the
        first place that is looked at."""
        last, several = self.last, len(self.places) > 1
        expected = last.follower or last
        if expected.fits(args):
            self.last = expected
            return expected, True
        others = [place for place in self.places if place is not expected] if several else []
        found, is_fitting = next((place for place in others if place.fits(args)), None), True
        if found is None:
            found, is_fitting = next((place for place in (expected, *others) if place.is_of(args)), None), False
        if found is None:
            found = self._another(expected)
        if several or found is not expected:
            last.follower = self.last = found
        return found, is_fitting

    def most_misses(self) -> int:
        return MOST_MISSES * len(self.places)

    def _another(self, expected: _Place) -> _Place:
        """A place for parameters that were not seen before, and libraries were called already; the one expected where
        there are too many."""
        self.places = [place for place in self.places if place is expected or not place.is_gone()]
        for place in self.places:
            place.follower = place.follower if place.follower in self.places else None
        if len(self.places) == MOST_PLACES:
            self.is_full = True
            return expected
        timed = next((list(place.timed) for place in self.places if len(place.timed) >= TIMED_CALLS), [])
        self.places.append(_Place(timed=timed))
        return self.places[-1]


class Replayed:
    """A graph that is recorded: where recordings are `wanted`, or else where its calls wait for the host.

    `what` describes it; `here` tells on which stream of the device a call is, None on no known one.
    """

    def __init__(
        self,
        plain: GraphCall,
        what: Recordable,
        device: int,
        *,
        wanted: bool,
        tape: Callable[[Pool], Tape] = CudaTape,
        here: Callable[[int], object] | None = None,
    ) -> None:
        inputs, outputs = what.inputs, what.outputs
        self.plain, self.roles, self.device, self.wanted = plain, inputs, device, wanted
        self.keeps = frozenset(index for index, role in enumerate(outputs) if type(role) is Saved)
        self.saved = [position for position, role in enumerate(inputs) if type(role) is Saved]
        self.written = what.written
        kept = (position for position, role in enumerate(inputs) if type(role) in (Parameter, Buffer))
        self.held = sorted(what.written.union(kept))
        self.gradients = frozenset(index for index, role in enumerate(outputs) if type(role) is Gradient)
        self.is_backward = bool(self.gradients)
        self.is_symbolic, self.is_set, self.unread, self.tape = what.is_symbolic, what.is_set, what.unread, tape
        self.changes = what.changes
        self.here = here or _stream_of
        self.sizes: dict[object, _Sizes] = {}
        self.homes: dict[StorageWeakRef, int] = {}
        self.reason = ""
        self.counted: set[str] = set()
        self.in_use = threading.Lock()
        _graphs.add(self)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self.reason or not self.in_use.acquire(blocking=False):  # another thread may be about to take the results
            return self.plain(args)
        try:
            return self._called(args)
        finally:
            self.in_use.release()

    def _called(self, args: list[Any]) -> Sequence[Any]:
        key = _sizes_of(args) if self.is_symbolic else None
        if self.is_set:
            key = key, settings()
        sizes = self.sizes.get(key)
        if sizes is None:
            if len(self.sizes) == MOST_SIZES:
                self._count_once(f"its inputs have more than {MOST_SIZES} sizes")
                return self.plain(args)
            sizes = self.sizes[key] = _Sizes()
        if sizes.is_plain or (sizes.last.is_plain and len(sizes.places) == 1):
            return self.plain(args)
        place, is_fitting = sizes.place_of(args)
        if sizes.is_full:
            self._count_once(f"it is called with more than {MOST_PLACES} sets of parameters")
        if place.is_plain:
            return self.plain(args)
        here = self.here(self.device)
        if here is None:  # somebody else records
            return self.plain(args)
        recording = place.recording
        if recording is not None:
            if recording.holding.clashes < MOST_CLASHES:
                if here != recording.stream:
                    return self.plain(args)
                results = recording.replayed(args) if is_fitting else None
                if results is not None:
                    count_replayed()
                    return results
                self._missed(sizes, place, recording, args)
                return self.plain(args)
            self._keep_apart(place)
            if place.is_plain:
                return self.plain(args)
        return self._prepared(sizes, place, here, args)

    def _missed(self, sizes: _Sizes, place: _Place, recording: Recording, args: list[Any]) -> None:
        """After some calls whose inputs lay elsewhere, or while results were held, there is a recording that copies
        them; after some while others' results were held, one in another pool. The memory of the old one is left
        to who holds it."""
        recording.misses += 1
        if self._is_refilled(args):
            self._refuse(REFILLED)
            return
        if recording.misses < sizes.most_misses():
            return
        pairs = zip(recording.fixed, recording.pointers, strict=True)
        moved = {position for position, pointer in pairs if args[position].data_ptr() != pointer}
        moved |= {one.position for one in recording.astray(args) if one.held.is_alive()}
        if not moved and recording.is_blocked:
            self._keep_apart(place)
        elif not moved.isdisjoint(self.written):
            self._drop(place, recording)
            place.is_plain = True
            self._count_once(MOVING)
        elif moved or recording.copies() != place.copies or recording.is_stale():
            place.moved |= moved.difference(self.saved)
            if not moved.isdisjoint(self.saved):  # forward has been recorded anew: what it saves will lie still again
                place.calls = PLAIN_CALLS
            self._drop(place, recording)

    def _keep_apart(self, place: _Place) -> None:
        """The next recording is to have another pool."""
        if place.recording is not None:
            place.apart += 1
            count_apart()
            self._drop(place, place.recording)

    def _drop(self, place: _Place, recording: Recording) -> None:
        place.copies |= recording.copies()
        place.recording = None
        if place.recordings >= MOST_RECORDINGS:
            place.is_plain = True
            count_unrecorded("its inputs move, or its results are held, time and again", self.wanted)

    def _pool(self, place: _Place, here: object) -> Pool:
        """The memory for a recording that nobody lends any. Gradients that are held over other graphs have a pool for
        such; what is held, or has to wait, all the same has one of its own."""
        if place.apart > self.is_backward or not (self.wanted or self._has_room()):
            return Pool(self.device, here)
        return pool_of(self.device, here, place.apart > 0)

    def _prepared(self, sizes: _Sizes, place: _Place, here: object, args: list[Any]) -> Sequence[Any]:
        """A call before the recording, or the recording itself."""
        place.calls += 1
        if self._is_refilled(args):
            self._refuse(REFILLED)
            return self.plain(args)
        lay, place.lay = place.lay, self._where(args)
        saved = [k for k in self.saved if k in place.lay]
        place.stays = {k for k in saved if k in lay and lay[k].pointer == place.lay[k].pointer}
        if place.calls <= PLAIN_CALLS or any(isinstance(value, Tensor) and is_lazy(value) for value in args):
            return self.plain(args)
        if not self.wanted and not place.recordings:
            waits = place.waits_for_host()
            if waits is None:
                return self._timed(place, args)
            if not waits:
                sizes.is_plain = True
                count_unrecorded("the device takes longer than its host", False)
                return self.plain(args)
        patience = MOST_MISSES if place.stays else sizes.most_misses()
        if place.stays != set(saved) and place.calls <= PLAIN_CALLS + TIMED_CALLS + patience:
            return self.plain(args)  # forward is about to be recorded: what it saves will lie still
        if _bytes_of([args[k] for k in saved if k not in place.stays]) > number("replay_copied_bytes"):
            place.is_plain = True
            count_unrecorded("what forward saved would be copied", self.wanted)
            return self.plain(args)
        if not _lock.acquire(blocking=False):
            return self.plain(args)
        try:
            recording = self._recorded(place, here, args)
        finally:
            _lock.release()
        results = None if recording is None else recording.replayed(args)
        return self.plain(args) if results is None else results

    def _timed(self, place: _Place, args: list[Any]) -> Sequence[Any]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        began = time.perf_counter()
        results = self.plain(args)
        took = time.perf_counter() - began
        end.record()
        place.timed.append((start, end, took))
        return results

    def _recorded(self, place: _Place, here: object, args: list[Any]) -> Recording | None:
        """The recording; None where there is none, or only from a later call on."""
        stays = self._lie_still(place)
        is_apart = self.is_backward and place.apart > 0
        lender = None if is_apart else lender_of(args, stays.intersection(self.saved), here)
        pool = self._pool(place, here) if lender is None else lender.pool
        if any(pool.has_lent(args[k]) for k in stays if isinstance(args[k], Tensor)):
            lender, pool = None, Pool(self.device, here)
        if not pool.in_use.acquire(blocking=False):
            return None
        place.recordings += 1
        try:
            treated = Treatment(
                stays=stays,
                unread=self.unread,
                moved=place.moved,
                keeps=self.keeps,
                copies=place.copies,
                gradients=self.gradients,
                yields=not self.is_backward,  # to copy all gradients takes too long
                changes=self.changes,
            )
            recording = record(self.plain, args, self.tape(pool), pool, treated, lender)
        except RuntimeError as error:  # CUDA's own refusal, after which the program is as it was
            self._refuse(f"it cannot be recorded: {str(error).splitlines()[0]}")
            return None
        finally:
            pool.in_use.release()
        if not self.wanted and recorded_bytes(self.device) > MOST_OF_MEMORY * _memory_of(self.device):
            self._refuse(f"with it recordings would hold {recorded_bytes(self.device) >> 20} MB of the device")
            return None
        place.recording = recording
        count_recorded()
        return recording

    def _has_room(self) -> bool:
        """Whether recordings cannot come to hold too much: what plain calls used on their way is what torch keeps."""
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        recorded = recorded_bytes(self.device) - free_bytes(self.device)  # which torch counts to what it keeps
        return recorded + kept <= MOST_OF_MEMORY * _memory_of(self.device)

    def _lie_still(self, place: _Place) -> set[int]:
        """The inputs that have to lie where they lie now."""
        return place.stays.union(self.held).difference(place.moved, self.unread)

    def _where(self, args: Sequence[Any]) -> dict[int, _Lay]:
        """Where what has to lie still is."""
        return {k: _Lay.of(args[k]) for k in (*self.held, *self.saved) if isinstance(args[k], Tensor)}

    def _is_refilled(self, args: Sequence[Any]) -> bool:
        """Whether a storage of what has to lie still has other memory than at a call before."""
        if len(self.homes) > MOST_HOMES:
            self.homes = {storage: home for storage, home in self.homes.items() if not storage.expired()}
        for value in (args[k] for k in (*self.held, *self.saved) if isinstance(args[k], Tensor)):
            storage = value.untyped_storage()
            if self.homes.setdefault(StorageWeakRef(storage), storage.data_ptr()) != storage.data_ptr():
                return True
        return False

    def _count_once(self, reason: str) -> None:
        """Some of its calls run plainly."""
        if reason not in self.counted:
            self.counted.add(reason)
            count_unrecorded(reason, self.wanted)

    def _refuse(self, reason: str) -> None:
        self.reason = reason
        self.sizes.clear()
        count_unrecorded(reason, self.wanted)


_graphs: weakref.WeakSet[Replayed] = weakref.WeakSet()


def give_up_recordings() -> None:
    """Gives back the memory of all recordings that nobody holds a result of; a graph that is called again has others.

    `torch._dynamo.reset()` does this: it leaves the functions behind a graph break where they are, for good.
    """
    for graph in list(_graphs):
        graph.sizes.clear()


def _sizes_of(args: Sequence[Any]) -> object:
    return tuple((v.size(), v.stride()) if isinstance(v, Tensor) else v for v in args)


def settings() -> object:
    """What libraries look at when they are called: a recording goes on doing what was set when it was made. Dynamo
    compiles again where those of products change, and looks at none of cuDNN's."""
    precision = torch._C._get_fp32_precision_getter
    cudnn = torch._C._get_cudnn_enabled(), torch._C._get_cudnn_deterministic(), torch._C._get_cudnn_benchmark()
    return precision("cuda", "conv"), precision("cuda", "matmul"), cudnn


def _bytes_of(values: Sequence[Tensor]) -> int:
    """The bytes of the storages that these tensors lie in."""
    return sum({s._cdata: s.nbytes() for s in (value.untyped_storage() for value in values)}.values())


def _stream_of(device: int) -> object:
    """The stream that work goes to now; None while it is being recorded by somebody else, or on another device."""
    if torch.cuda.is_current_stream_capturing() or torch._C._cuda_getDevice() != device:
        return None
    return torch._C._cuda_getCurrentRawStream(device)


def _memory_of(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _waits_for_host(timed: tuple[Any, Any, float]) -> bool:
    start, end, took = timed
    return bool(end.query()) and start.elapsed_time(end) < 1e3 * HOST_BOUND * took


# ---- which graphs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recordable:
    """What a recording has to know of a graph on a GPU; `reason` says why none may be made, if so."""

    inputs: tuple[InputRole, ...]
    outputs: tuple[OutputRole, ...]
    device: torch.device
    is_symbolic: bool
    reason: str
    is_set: bool = False
    """Whether it calls a library that does what the user has set at each call."""
    unread: frozenset[int] = frozenset()
    """The positions of inputs that nothing reads, as numbers that Dynamo hands over as tensors and guards on, and the
    random state of an attention without dropout."""
    changes: tuple[Change, ...] = ()
    """How its large blocks come and go, and what forward saved goes; none where sizes are symbols."""
    multiplies: bool = False
    """Whether it calls cuBLAS."""
    written: frozenset[int] = frozenset()
    """The positions of inputs that the graph itself writes."""

    @staticmethod
    def of(program: Program, steps: Sequence[Step] = ()) -> Recordable | None:
        """Of the graph that runs these steps; None for a graph that is not a GPU's."""
        devices = {value.device for value in _values(program)}
        device = next((device for device in devices if device.type == "cuda"), None)
        if device is None:
            return None
        signature = program.signature
        roles = tuple(signature.inputs), tuple(signature.outputs)
        unread = frozenset(position for position, node in enumerate(program.placeholders) if _is_unread(node))
        is_symbolic, calls, reason = _is_symbolic(program), _calls(program), reason_against(program)
        is_set, multiplies = bool(calls & LIBRARIES), bool(calls & PRODUCTS)
        of_memory = () if is_symbolic else _changes(program, steps)
        written = _written(program)
        return Recordable(*roles, device, is_symbolic, reason, is_set, unread, of_memory, multiplies, written)


def replayed(plain: GraphCall, what: Recordable | None, wanted: bool | None) -> GraphCall:
    """A graph, to be recorded if it is a GPU's: where `wanted`, or (None) where its calls wait for the host."""
    if wanted is False or what is None:
        return plain
    if what.reason:
        count_unrecorded(what.reason, bool(wanted))
        return plain
    index = torch.cuda.current_device() if what.device.index is None else what.device.index
    return Replayed(plain, what, index, wanted=bool(wanted), tape=partial(CudaTape, multiplies=what.multiplies))


PRODUCTS = frozenset("mm addmm bmm baddbmm".split())
"""Operators of cuBLAS, by the names of their packets."""
LIBRARIES = PRODUCTS.union("convolution convolution_backward cudnn_convolution".split())
"""Those whose precision the user sets, as `settings` has it."""


def _calls(program: Program) -> set[str]:
    """The packets of the operators that a graph calls, by name."""
    targets = (node.target for node in program.module.graph.nodes if node.op == "call_function")
    return {t._schema.name.split("::")[-1] for t in targets if isinstance(t, torch._ops.OpOverload)}


def _is_symbolic(program: Program) -> bool:
    """Whether calls may differ in more than the values of tensors."""
    given = [node.meta.get("val") for node in program.placeholders]
    sizes = (size for value in given if isinstance(value, Tensor) for size in value.size())
    return not all(isinstance(value, Tensor) for value in given) or any(isinstance(s, torch.SymInt) for s in sizes)


def _written(program: Program) -> frozenset[int]:
    """The positions of the inputs that the graph writes, and not what is called around it: by a call in place, or by a
    kernel whose result the input holds afterwards."""
    in_place = {effect.of for effect in program.signature.effects if isinstance(effect, Written)}
    by_kernels = set(program.after_call.values())
    pairs = zip(program.signature.inputs, program.placeholders, strict=True)
    return frozenset(at for at, (role, node) in enumerate(pairs) if role in in_place or node.name in by_kernels)


def _changes(program: Program, steps: Sequence[Step]) -> tuple[Change, ...]:
    values = {node.name: node.meta.get("val") for node in program.module.graph.nodes}
    inputs = enumerate(zip(program.signature.inputs, program.placeholders, strict=True))
    saved = {node.name: position for position, (role, node) in inputs if type(role) is Saved}
    return tuple(changes(steps, values, saved, LARGE_BYTES))


def _values(program: Program) -> list[Tensor]:
    return [value for node in program.module.graph.nodes for value in _tensors(node.meta.get("val"))]


def _tensors(value: object) -> list[Tensor]:
    parts = value if isinstance(value, list | tuple) else (value,)
    return [part for part in parts if isinstance(part, Tensor)]


def reason_against(program: Program) -> str:
    """Why a replay would not do what a call does; empty where it does."""
    if apart := _apart(program):
        return apart
    for node in program.module.graph.nodes:
        if node.op == "call_function" and (why := _against(node.target)):
            return why
        if _drops_in_attention(node):
            return f"{node.target.name()} keeps its random state on the host or the device, as it is recorded or not"
        if any(free_unbacked_symbols(value) for value in _tensors(node.meta.get("val"))):
            return f"{node.target} waits for a value"
    return ""


def _apart(program: Program) -> str:
    """What is on another device than the rest; empty if nothing is."""
    device = next((value.device for value in _values(program) if value.device.type == "cuda"), None)
    for node in program.module.graph.nodes:
        for value in _tensors(None if _is_unread(node) else node.meta.get("val")):
            if device is not None and value.device != device:
                what = "a tensor that it is given" if node.op == "placeholder" else str(node.target)
                return f"{what} is on {value.device}, other tensors are on {device}"
    return ""


def _against(target: Any) -> str:
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"it runs {target.name()}"
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    if torch.Tag.data_dependent_output in target.tags:
        return f"{target.name()} waits for a value"
    if target.namespace not in ("aten", "prims", "assay", LAUNCHES):
        return f"{target.name()} is an operator of the user's own"
    return f"{target.name()} runs on the host" if target.name() in ON_HOST else ""


def _is_unread(node: fx.Node) -> bool:
    """Whether an input holds nothing that a call looks at."""
    return node.op == "placeholder" and all(_is_random_state(node, user) for user in node.users)


def _is_random_state(node: fx.Node, user: fx.Node) -> bool:
    """Whether a call takes an input as the random state of an attention that drops nothing, and as nothing else."""
    given = _given_to_attention(user)
    if given is None or given.get("dropout_p", 0.0) != 0.0:
        return False
    return {name for name, value in given.items() if value is node} <= {"philox_seed", "philox_offset"}


def _drops_in_attention(node: fx.Node) -> bool:
    """Whether a call is one of the library's attentions, or its gradient, with dropout in it."""
    given = _given_to_attention(node)
    return given is not None and given.get("dropout_p", 0.0) != 0.0


def _given_to_attention(node: fx.Node) -> dict[str, Any] | None:
    """The arguments of a call of one of the library's attentions, or its gradient, by name; None of any other."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = schema_of(node.target)
    names = [argument.name for argument in schema.arguments]
    if "scaled_dot_product" not in schema.name or "dropout_p" not in names:
        return None
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


ON_HOST = frozenset(
    f"assay::{name}" for name in ("generator_state", "exchange_generator_state", "reserve_numbers", "offload", "reload")
)
"""Operators of this compiler that do more than launch."""
