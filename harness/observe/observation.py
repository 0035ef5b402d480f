"""Everything that a program can observe of a run: one `Observation` for each act of a protocol.

Training: the loss is `output.loss` where there is one, otherwise every differentiable output gets a cotangent that
depends on the seed and its path alone. Gradients are set to None before a backward, unless it accumulates. Inference:
under `torch.no_grad`.

Cotangents are odd multiples of 1/16 below 2, which every floating dtype represents, so that eager, compiled and
float64 runs are given the same numbers.

Warnings: the categories of Python's `UserWarning` raised by the program count. Those raised from the files of
torch's compiling packages (`COMPILING`) tell of compilation and are left out. A warning that eager gives in one run
and not in the next (many are said once a process) is held against nobody.

A case's scenario is run in the place of its callable: what it returns and raises is what is observed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import pickle
import random
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode_stack

from assay.compiler.ir.tensors.wrappers import inner_tensors, is_wrapper, with_inner
from assay.harness.calls.clone import Call, is_plain
from assay.harness.calls.errors import let_go
from assay.harness.calls.memory import Alias, aliases, bits, is_allocated, number_bits, poke
from assay.harness.calls.tree import Tree, modules_in, walk, walk_call
from assay.harness.observe import ambient, leaks
from assay.harness.observe.plain_loops import plain_loops
from assay.harness.observe.printed import heard
from assay.harness.observe.view_chain import history_of
from assay.harness.protocol.acts import (
    ALL,
    AUTOCAST,
    AUTOCAST_DTYPE,
    HANDED_ON,
    IN_COLUMNS,
    INFERENCE,
    LARGEST,
    SAME,
    SUMMED,
    UNSEEN,
    Act,
)
from assay.harness.protocol.fresh_numbers import state_of
from assay.harness.protocol.other_dtypes import Dtypes

COMPILING = ("_dynamo", "_inductor", "_functorch", "fx", "_subclasses", "_higher_order_ops", "_logging", "export")
TORCH = Path(torch.__file__).parent
COPIES = 4
"""Tensors that are written for each one that was given up: the allocator may give a few other places first."""
OURS = Path(__file__).parents[2]
LOSS = "output.loss"
"""The path of the result from which a backward starts, if it is one number."""
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
Place = tuple[int, str, str]
"""A tensor of a run: its act, the kind of thing that it is, its path."""
HELD_NUMBERS = 1 << 24
"""Results and gradients of earlier acts are kept, to be looked at again, while they have no more numbers than that."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a tensor is, its numbers apart. `view` is what it is a view of: a path, `(unobserved)`, or nothing.

    `view_chain` names the autograd nodes from a view down to its base. Those of an autograd.Function are `custom`,
    because a backend may name the node of a whole program as it likes.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    layout: str
    stride: tuple[int, ...]
    offset: int
    requires_grad: bool
    is_leaf: bool
    has_grad_fn: bool
    view: str
    view_chain: tuple[str, ...]
    conj: bool
    neg: bool
    is_inference: bool
    is_allocated: bool
    storage_bytes: int
    """Of what is a view of nothing: the memory that it keeps from others, needed or not."""
    hooks_left: int
    """How many of Python's hooks are on a leaf."""


NO_FACTS = Facts((), torch.float32, "", "", (), 0, False, False, False, "", (), False, False, False, True, 0, 0)
"""Of tensors that are looked at for their numbers alone."""
KEPT_ON_HOST = 1 << 27
"""Copies of so many numbers are kept on the host: every run of a program has its own, in float64 too."""
_least_on_host: ContextVar[int] = ContextVar("least_on_host", default=KEPT_ON_HOST)


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor as it was at one moment: its facts, and a copy of its numbers, which may be kept on the host."""

    facts: Facts
    value: Tensor

    def device(self) -> torch.device:
        """Where the tensor was, and there is room to judge its numbers a piece at a time."""
        return torch.device(self.facts.device)


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception, and whether the call or the backward raised it."""

    error: BaseException
    during: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One act. Paths begin with output, input, parameter, buffer, closure or self."""

    kinds: dict[str, str]
    scalars: dict[str, Any]
    outputs: dict[str, Seen]
    state: dict[str, Seen]
    """Inputs, parameters and buffers after the call."""
    gradients: dict[str, Seen | None]
    versions: dict[str, int]
    """By how much the version of each tensor of the state grew."""
    written: frozenset[str]
    """The tensors of the state whose numbers the step changed, whatever their versions say."""
    aliases: frozenset[Alias]
    pokes: dict[str, tuple[str, ...]]
    earlier: dict[str, Seen]
    """Results and gradients of acts before, looked at again: `output.x of step 2`. After the last act, all."""
    unchanged: frozenset[str]
    """Which of these have the numbers that they had then."""
    error: Raised | None
    warnings: dict[str, str]
    """By category, what the first one says."""
    random: dict[str, str]
    """A digest of each random stream after the step: the global ones, and the generators that the call reaches."""
    ambient: dict[str, Any]
    """The global settings after the act (harness/observe/ambient.py)."""
    printed: str
    """What the program wrote to standard output."""
    uses_random: bool
    hooks: tuple[str, ...]
    """The order in which gradients arrived at leaves."""
    arrivals: dict[str, str]
    """What the hooks of each leaf saw: how many gradients, and whether those are what was added to `.grad`."""
    seconds: float
    act: str = ""
    """What the act was, in words."""
    is_spent: bool = False
    """A backward through a graph that was gone through and freed. Eager raises, if anything was saved in it."""
    has_stray: bool = False
    """A call with an index out of range, which eager refuses."""
    held: tuple[str, ...] = ()
    """After the last act: inputs and results of one more call that are alive when nobody holds them."""
    growth_bytes: int = 0
    """After the last act: by how much memory grows with each further call."""

    @property
    def is_meant_to_raise(self) -> bool:
        """Whether the act was there for an error, which says nothing of the program."""
        return self.is_spent or self.has_stray


@dataclass(slots=True)
class _Step:
    """What one step has produced so far; turned into an `Observation` at its end."""

    output: Any = None
    outputs: dict[str, Seen] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    aliases: frozenset[Alias] = frozenset()
    error: Raised | None = None
    hooks: list[str] = field(default_factory=list)
    arrivals: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    ambient: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """The acts of a run, and what they are given.

    `calls` has the call of each act with its arguments. It has None for an act without a call of its own, and for a
    call that was given up. `state(k, is_other)` gives the numbers by path that the state has from its `k`th move on, or
    these in the other dtype. `other_dtypes` says what each dtype then becomes.
    """

    acts: tuple[Act, ...]
    calls: list[Call | None]
    state: Callable[[int, bool], Mapping[str, Tensor]]
    another: Callable[[], Call] | None = None
    """Makes one more call, of which nothing is kept: where leaks are looked for."""
    other_dtypes: Dtypes = field(default_factory=dict)
    moved: Callable[[Tensor], Tensor] | None = None
    """What becomes of each cotangent."""
    pristine: Mapping[str, Tensor] = field(default_factory=dict)
    """The state before its first move, by path: nobody writes these tensors."""
    skipped: frozenset[int] = frozenset()
    """Acts that are left out. What is moved in them is moved before the next act that is not."""

    @property
    def made(self) -> tuple[int, ...]:
        """The acts that are gone through."""
        return tuple(index for index in range(len(self.acts)) if index not in self.skipped)


@dataclass(frozen=True, slots=True)
class Watch:
    """How closely a run is watched.

    `is_poked`: the last act's outputs are written to, to see what else changes. `is_brief`: numbers, kinds, errors and
    random state are all that is looked at, which is what a further run of eager is made for.

    What is kept can be less, so that large programs fit into memory. `places`: the tensors of numbers that are kept, by
    their act, kind and path, and which of their elements; None: all. `keeps_unwritten`: the state that no act has
    written is kept too. `like`: a run whose memory stands for what is equal to it.
    """

    is_poked: bool = True
    is_brief: bool = False
    places: Mapping[Place, Tensor | None] | None = None
    keeps_unwritten: bool = True
    like: Sequence[Observation] | None = None

    def kept(self, index: int, seen: Observation, written: Set[str]) -> Observation:
        """What an act has given, without the tensors that nobody asks for; `written` until then are those."""
        if self.like is not None:
            return _sharing(seen, self.like[index])
        if self.places is not None:
            return self._asked(index, seen, self.places)
        if self.keeps_unwritten:
            return seen
        return dataclasses.replace(seen, state={path: one for path, one in seen.state.items() if path in written})

    def asks(self, place: Place) -> bool:
        """Whether the numbers at that place are kept."""
        return self.places is None or place in self.places

    @property
    def looks_back(self) -> bool:
        """Whether anybody asks for what acts gave before, looked at again."""
        return self.places is None or any(kind == "earlier" for _, kind, _ in self.places)

    def _asked(self, index: int, seen: Observation, places: Mapping[Place, Tensor | None]) -> Observation:
        def some(kind: str, values: Mapping[str, Seen | None]) -> dict[str, Any]:
            return {
                path: None if value is None else _of_elements(value, places.get((index, kind, path)))
                for path, value in values.items()
                if (index, kind, path) in places or (kind == "values" and value is not None and _is_exact(value))
            }

        return dataclasses.replace(
            seen,
            outputs=some("values", seen.outputs),
            state=some("mutation", seen.state),
            gradients=some("gradient", seen.gradients),
            earlier=some("earlier", seen.earlier),
        )


def _is_exact(seen: Seen) -> bool:
    return not (seen.value.is_floating_point() or seen.value.is_complex())


def _of_elements(seen: Seen, which: Tensor | None) -> Seen:
    return dataclasses.replace(seen, value=elements_at(seen.value, which))


def elements_at(value: Tensor, which: Tensor | None) -> Tensor:
    """The elements at these places in a row; the value as it is for None."""
    return value if which is None else value.reshape(-1).index_select(0, which.to(value.device))


def _sharing(seen: Observation, other: Observation) -> Observation:
    """The same, with the other's memory for the numbers that are equal to its, bit for bit."""

    def shared(values: Mapping[str, Seen | None], others: Mapping[str, Seen | None]) -> dict[str, Any]:
        return {path: _shared(value, others.get(path)) for path, value in values.items()}

    return dataclasses.replace(
        seen,
        outputs=shared(seen.outputs, other.outputs),
        state=shared(seen.state, other.state),
        gradients=shared(seen.gradients, other.gradients),
        earlier=shared(seen.earlier, other.earlier),
    )


def _shared(seen: Seen | None, other: Seen | None) -> Seen | None:
    if seen is None or other is None:
        return seen
    one, known = seen.value, other.value
    is_alike = (one.dtype, one.shape, one.device) == (known.dtype, known.shape, known.device)
    return dataclasses.replace(seen, value=known) if is_alike and _has_bits(known, one) else seen


CLOSELY, WITHOUT_POKES, BRIEFLY = Watch(), Watch(is_poked=False), Watch(is_poked=False, is_brief=True)


def observe(
    script: Script,
    mode: str,
    seed: int,
    compiled: Callable[..., Any] | None = None,
    scenario: Callable[..., Any] | None = None,
    watch: Watch = CLOSELY,
) -> tuple[Observation, ...]:
    """Goes through the acts of the script but those that it skips, and watches.

    `compiled` is called in the place of the calls' function; it is the function's parameters and closure that are
    watched either way. A `scenario` is given the one or the other, and the arguments.

    The random state is reset to `seed` before the first act. The objects of the calls are left as the program
    leaves them. Dispatch modes that are on see the program alone, and not what looks at it.
    Raises: KeyboardInterrupt only; whatever else the program raises is observed.
    """
    first = script.calls[0]
    assert first is not None, "a protocol begins with a call"
    function = first.function if compiled is None else compiled
    function = function if scenario is None else functools.partial(scenario, function)
    run = _Run(script, function, mode, seed, watch)
    set_mode(first, mode)
    seed_all(seed)
    last = len(script.acts) - 1
    with _disable_current_modes(), ambient.put_back():
        return tuple(
            watch.kept(index, run.observed(index, watch.is_poked and index == last), run.written)
            for index in run.gone_through()
        )


def seed_all(seed: int) -> None:
    """Resets every random stream that a program may draw from."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def random_state(generators: Mapping[str, torch.Generator] | None = None) -> dict[str, str]:
    """A digest of each random stream: the global ones, and the `generators` by their path."""
    states: dict[str, Any] = {"torch.cpu": torch.get_rng_state().numpy().tobytes()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch.cuda:{index}"] = state.numpy().tobytes()
    states["python"] = pickle.dumps(random.getstate())
    states["numpy"] = pickle.dumps(numpy.random.get_state())
    for path, generator in (generators or {}).items():
        states[path] = generator.get_state().numpy().tobytes()
    return {name: hashlib.sha1(state).hexdigest() for name, state in states.items()}


def is_same_stream(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the random streams that both know are in one state. Those of a GPU are known once it is in use."""
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def set_mode(call: Call, mode: str) -> None:
    """Puts the call's modules into training or evaluation."""
    for module in modules_in(call.function, call.args, call.kwargs):
        module.train(mode == "train")


def one_step(call: Call, function: Callable[..., Any], mode: str, seed: int) -> None:
    """The call, and in training its backward, with nothing watched: what a measurement repeats."""
    with grad_mode(mode):
        output = function(*call.args, **call.kwargs)
        if mode == "train":
            backward(walk(output, "output"), seed)


def grad_mode(mode: str) -> contextlib.AbstractContextManager[Any]:
    """Gradients on for training, off for inference."""
    return torch.enable_grad() if mode == "train" else torch.no_grad()


def backward(
    output: Tree,
    seed: int,
    moved: Callable[[Tensor], Tensor] | None = None,
    ends_at: str = ALL,
    retains: bool = False,
    into: Sequence[Tensor] | None = None,
) -> None:
    """Backward from the loss, or from every differentiable output with its cotangent, or what `moved` makes of it.

    `ends_at` LARGEST: from the largest output alone, though there be a loss. IN_COLUMNS: so too, and its cotangent lies
    in columns. SUMMED: from every output but the loss, and each cotangent is one number. `into`: the leaves that are
    asked for; None: all.
    """
    found = {path: tensor for path, tensor in output.tensors.items() if tensor.requires_grad}
    loss = found.get(LOSS)
    if ends_at == ALL and loss is not None and loss.numel() == 1:
        loss.backward(retain_graph=retains, inputs=into)
    elif found:
        draw, ends = DRAWS.get(ends_at, cotangent), _ends_of(found, ends_at)
        cotangents = [draw(path, end, seed) for path, end in ends.items()]
        given = [moved(one) if moved else one for one in cotangents]
        torch.autograd.backward(list(ends.values()), given, retain_graph=retains, inputs=into)


def _ends_of(ends: Mapping[str, Tensor], ends_at: str) -> Mapping[str, Tensor]:
    """From which of the differentiable outputs a backward starts, where it does not start from the loss."""
    if ends_at in (LARGEST, IN_COLUMNS):
        largest = max(ends, key=lambda path: ends[path].numel())
        return {largest: ends[largest]}
    others = {path: end for path, end in ends.items() if path != LOSS}
    return others if others and ends_at == SUMMED else ends


def cotangent(path: str, tensor: Tensor, seed: int) -> Tensor:
    """The incoming gradient of an output: odd multiples of 1/16 below 2, by the seed and the path alone. Dispatch modes
    that are on do not see it made."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()) ^ seed)
    if is_wrapper(tensor):
        return with_inner(tensor.detach(), lambda inner: _drawn(inner, generator))
    return _drawn(tensor, generator)


def one_number(path: str, tensor: Tensor, seed: int) -> Tensor:
    """One such number for all elements of an output, expanded to its size, as the gradient of a sum is."""
    if is_wrapper(tensor):
        return cotangent(path, tensor, seed)
    return cotangent(path, tensor.detach().new_empty(()), seed).expand(tensor.shape)


def _in_columns(path: str, tensor: Tensor, seed: int) -> Tensor:
    """The cotangent of an output, with its last two dimensions in the other order in memory."""
    drawn = cotangent(path, tensor, seed)
    return drawn if drawn.dim() < 2 or not is_plain(drawn) else drawn.mT.contiguous().mT


DRAWS: Mapping[str, Callable[[str, Tensor, int], Tensor]] = {SUMMED: one_number, IN_COLUMNS: _in_columns}
"""How the cotangents of a backward are made, where it is not as usual."""


def _drawn(tensor: Tensor, generator: torch.Generator) -> Tensor:
    with _disable_current_modes():
        numbers = (2 * torch.randint(-16, 16, tensor.shape, generator=generator) + 1) / 16
        return numbers.to(tensor.device, tensor.dtype)


def leaves_of(call: Call, state: Tree) -> dict[str, Tensor]:
    """The tensors that receive gradients, by path: leaves of the state, and the leaves hidden behind the rest."""
    found: dict[str, Tensor] = {}
    for path, tensor in state.tensors.items():
        root = tensor if history_of(tensor)[0] or tensor._base is None else tensor._base
        leaf = call.leaves.get(id(root), root)
        if leaf.is_leaf and leaf.requires_grad:
            found[path if root is tensor else f"{path}._base"] = leaf
    return found


@contextlib.contextmanager
def kept_on_host(numel: int) -> Iterator[None]:
    """Copies of so many numbers are kept on the host within, and more room is left on a GPU."""
    before = _least_on_host.set(numel)
    try:
        yield
    finally:
        _least_on_host.reset(before)


def look(tensor: Tensor, names: Mapping[int, str], before: Tensor | None = None) -> Seen:
    """The facts and numbers of a tensor now; `names` gives the paths of tensors that it may be a view of. Where it
    still has the numbers of `before`, that is the copy of them."""
    return Seen(facts_of(tensor, names), _numbers_since(tensor, before))


def _look_at_numbers(tensor: Tensor, names: Mapping[int, str], before: Tensor | None = None) -> Seen:
    """`look` for a run of which the numbers alone matter."""
    return Seen(NO_FACTS, _numbers_since(tensor, before))


def _numbers_since(tensor: Tensor, before: Tensor | None) -> Tensor:
    """A copy of a tensor's numbers; `before` itself where they are still the same."""
    if before is None:
        return _numbers(tensor)
    lying = _lying(tensor)
    numbers = lying if before.device == lying.device else _copied(lying)
    if _has_bits(before, numbers):
        return before
    return _copied(lying) if numbers is lying else numbers


def facts_of(tensor: Tensor, names: Mapping[int, str]) -> Facts:
    """The facts of a tensor now; `names` gives the paths of tensors that it may be a view of."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    is_leaf, has_grad_fn, chain = history_of(tensor)
    return Facts(
        shape=tuple(tensor.shape) if not tensor.is_nested else (),
        dtype=tensor.dtype,
        device=str(tensor.device),
        layout=str(tensor.layout),
        stride=tuple(tensor.stride()) if strided else (),
        offset=int(tensor.storage_offset()) if strided else 0,
        requires_grad=tensor.requires_grad,
        is_leaf=is_leaf,
        has_grad_fn=has_grad_fn,
        view="" if tensor._base is None else names.get(id(tensor._base), "(unobserved)"),
        view_chain=chain,
        conj=tensor.is_conj(),
        neg=tensor.is_neg(),
        is_inference=tensor.is_inference(),
        is_allocated=is_allocated(tensor),
        storage_bytes=tensor.untyped_storage().nbytes() if tensor._base is None and is_plain(tensor) else 0,
        hooks_left=_hooks_on(tensor) if is_leaf else 0,
    )


def _hooks_on(tensor: Tensor) -> int:
    kinds = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return sum(len(hooks) for hooks in kinds if hooks is not None)


def _numbers(tensor: Tensor) -> Tensor:
    """A copy of a tensor's numbers; of none of them where its storage was freed."""
    return _copied(_lying(tensor))


def _lying(tensor: Tensor) -> Tensor:
    """A tensor's numbers where they lie, as far as they lie as plain ones; of a wrapper those of its inner tensors."""
    if is_wrapper(tensor):
        with torch.no_grad():
            return torch.cat([_lying(inner).reshape(-1) for inner in inner_tensors(tensor)])
    if not is_allocated(tensor) or _has_negative_size(tensor):
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    plain = tensor.detach()
    plain = plain.to_dense() if plain.layout not in (torch.strided, torch.jagged) else plain
    plain = plain.values() if plain.is_nested else plain
    return plain.resolve_conj().resolve_neg()


def _has_negative_size(tensor: Tensor) -> bool:
    """Whether a tensor has a size that nothing can be copied to: eager expands what has no elements to any size."""
    return not tensor.is_nested and min(tensor.shape, default=0) < 0


def _copied(plain: Tensor) -> Tensor:
    with torch.no_grad():
        if _is_for_host(plain):
            return plain.cpu().contiguous()
        return plain.clone(memory_format=torch.contiguous_format)


def _is_for_host(plain: Tensor) -> bool:
    """Whether a copy of these numbers is kept on the host, though they lie elsewhere."""
    return plain.device.type != "cpu" and plain.numel() >= _least_on_host.get()


def _has_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, bit for bit."""
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(bits(one).reshape(-1), bits(other).reshape(-1))  # a GPU takes 64 dimensions at most


@dataclass(slots=True)
class _Made:
    """A call that was made: what it was given, and what it gave."""

    call: Call
    output: Tree
    is_poor: bool
    """It raised, so that there is nothing to go back from."""


class _Run:
    """A run of a script on one callable: what its acts have made so far."""

    def __init__(
        self,
        script: Script,
        function: Callable[..., Any],
        mode: str,
        seed: int,
        watch: Watch,
    ) -> None:
        self._script, self._function, self._mode, self._seed, self._moved = script, function, mode, seed, script.moved
        self._watch, self._is_brief = watch, watch.is_brief
        self._look = _look_at_numbers if watch.is_brief else look
        self._known = self._known_at_first()
        """Copies of numbers that tensors may still have, by the id of each."""
        self._made: list[_Made] = []
        self.written: set[str] = set()
        self._moves = 0
        self._is_behind = False
        """Whether the state was to be moved in an act that was skipped."""
        self._is_in_other_dtype = False
        self._own_dtypes: dict[str, torch.dtype] = {}
        self._modes = _get_current_dispatch_mode_stack()
        self._held: dict[str, Tensor] = {}
        """What acts gave, by `PATH of step N`."""
        self._copies: dict[str, Tensor] = {}
        """The numbers that these had."""
        self._news: set[str] = set()
        """Which of these the act before gave."""
        self._rubbish: list[Tensor] = []
        """What lies where arguments lay that were given up."""

    def gone_through(self) -> Iterator[int]:
        """The acts that are not skipped, each when its turn has come."""
        for index, act in enumerate(self._script.acts):
            if index and self._script.acts[index - 1].gives_up:
                self._give_up(index - 1)
            if index and self._script.acts[index - 1].is_spent:
                seed_all(self._seed + index)  # how much a backward drew before it raised says nothing
            self._moves += act.moves_state
            self._is_behind |= act.moves_state
            if index not in self._script.skipped:
                yield index

    def observed(self, index: int, is_poked: bool) -> Observation:
        """One act, and all that can be seen of it."""
        act = self._script.acts[index]
        if self._is_behind or act.in_other_dtype != self._is_in_other_dtype:
            self._prepare_state(act)
        call = self._call_of(index) if act.calls else self._made[-act.back].call
        is_last = index == len(self._script.acts) - 1
        before = walk_call(call.function, call.args, call.kwargs)
        leaves = leaves_of(call, before) if self._mode == "train" else {}
        if act.back and not act.accumulates:
            self._drop_gradients(leaves)
        if act.relays_gradients:
            _relay_gradients(leaves)
        versions = {path: _version(tensor) for path, tensor in before.tensors.items()}
        numbers = self._numbers_of(before.tensors)
        random_before = random_state(before.generators)
        step = self._enact(act, call, before, leaves)
        if step.error is not None:
            let_go(step.error.error)
        random_after = random_state(before.generators)
        after = walk_call(call.function, call.args, call.kwargs)
        names = _names(before.tensors)
        watched = after.tensors | step.tree.tensors
        state = self._looked(after.tensors, names, numbers)
        self._known = {id(tensor): state[path].value for path, tensor in after.tensors.items()}
        unchanged = {path for path, value in numbers.items() if path in state and state[path].value is value}
        written = frozenset(numbers.keys() - unchanged)
        self.written |= written
        seen_again = self._held if is_last else {path: self._held[path] for path in self._news if path in self._held}
        earlier = self._looked(seen_again, {}, self._copies)
        observation = Observation(
            kinds=after.kinds | step.tree.kinds,
            scalars=after.scalars | step.tree.scalars,
            outputs=step.outputs,
            state=state,
            gradients=self._gradients_of(index, leaves) if act.back else {},
            versions={path: _version(before.tensors[path]) - version for path, version in versions.items()},
            written=written,
            aliases=step.aliases | (aliases(watched | _gradients(leaves)) if self._sees_graph(act) else frozenset()),
            earlier=earlier,
            unchanged=frozenset(path for path, seen in earlier.items() if seen.value is self._copies.get(path)),
            error=step.error,
            warnings=step.warnings,
            random=random_after,
            ambient=step.ambient,
            printed=step.printed,
            uses_random=not is_same_stream(random_before, random_after),
            hooks=tuple(step.hooks),
            arrivals=step.arrivals,
            pokes=poke(step.tree.tensors, watched | _gradients(leaves)) if is_poked else {},
            seconds=step.seconds,
            act=str(act),
            is_spent=act.is_spent,
            has_stray=act.strays,
        )
        looked = step.outputs | {f"{path}.grad": seen for path, seen in observation.gradients.items() if seen}
        self._keep(index + 1, step.tree.tensors | _gradients(leaves if act.back else {}), looked)
        return observation if not is_last else self._with_leaks(observation)

    def _known_at_first(self) -> dict[int, Tensor]:
        """The pristine numbers of the state, by the id of each tensor."""
        first, pristine = self._script.calls[0], self._script.pristine
        assert first is not None
        current = state_of(first.function) if pristine else {}
        known = {path: value for path, value in pristine.items() if path in current and not _is_for_host(value)}
        return {id(current[path]): value for path, value in known.items()}

    def _numbers_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the numbers of tensors, one for each: that which is known, where it still has these numbers."""
        unique = {id(tensor): tensor for tensor in tensors.values()}
        copies = {key: _numbers_since(tensor, self._known.get(key)) for key, tensor in unique.items()}
        return {path: copies[id(tensor)] for path, tensor in tensors.items()}

    def _looked(
        self, tensors: Mapping[str, Tensor], names: Mapping[int, str], before: Mapping[str, Tensor] = NOTHING
    ) -> dict[str, Seen]:
        """What tensors are now, each looked at once, though it has several paths: parameters may be tied."""
        seen: dict[tuple[int, int], Seen] = {}
        found: dict[str, Seen] = {}
        for path, tensor in tensors.items():
            key = id(tensor), id(before.get(path))
            if key not in seen:
                seen[key] = self._look(tensor, names, before.get(path))
            found[path] = seen[key]
        return found

    def _gradients_of(self, index: int, leaves: Mapping[str, Tensor]) -> dict[str, Seen | None]:
        """The gradients that leaves have after an act, as far as they are asked for."""
        asked = {path: leaf.grad for path, leaf in leaves.items() if self._watch.asks((index, "gradient", path))}
        seen = self._looked({path: grad for path, grad in asked.items() if grad is not None}, {})
        return {path: seen.get(path) for path in asked}

    def _sees_graph(self, act: Act) -> bool:
        """Whether gradients have come that may share memory, and anybody asks."""
        return bool(act.back) and not self._is_brief

    def _give_up(self, index: int) -> None:
        """Lets go of the arguments of an act, and writes tensors of as many bytes in their place, all of them ones.

        The arguments live on where autograd or a result holds them. The program and its state stay.
        """
        call, first = self._script.calls[index], self._script.calls[0]
        if call is None or first is None or call is first or not self._made or self._made[-1].call is not call:
            return
        places = [
            (tensor.untyped_storage().nbytes(), tensor.device)
            for tensor in walk((call.args, call.kwargs), "input").tensors.values()
            if is_plain(tensor) and is_allocated(tensor)
        ]
        self._script.calls[index] = None
        self._made[-1] = dataclasses.replace(self._made[-1], call=Call(call.function, (), {}, first.leaves))
        del call
        self._rubbish = [
            torch.full((size,), 0xFF, dtype=torch.uint8, device=device)
            for size, device in places
            for _ in range(COPIES)
        ]

    def _drop_gradients(self, leaves: Mapping[str, Tensor]) -> None:
        """Sets gradients to None; those of inputs of calls before stay with them."""
        for leaf in leaves.values():
            leaf.grad = None

    def _prepare_state(self, act: Act) -> None:
        """Gives the state other numbers, unless the program itself has written them, and the dtype that the act has."""
        first = self._script.calls[0]
        assert first is not None
        current = state_of(first.function)
        numbers = self._script.state(self._moves, act.in_other_dtype) if self._moves else {}
        numbers = {path: value for path, value in numbers.items() if self._is_movable(path, current.get(path), value)}
        if act.in_other_dtype != self._is_in_other_dtype:
            self._convert(current, numbers, act.in_other_dtype)
        elif self._is_behind:
            for path, value in numbers.items():
                with torch.no_grad():
                    current[path].copy_(value)
                if not _is_for_host(value):
                    self._known[id(current[path])] = value
        self._is_behind = False

    def _is_movable(self, path: str, tensor: Tensor | None, value: Tensor) -> bool:
        return tensor is not None and path not in self.written and tensor.shape == value.shape

    def _convert(self, current: Mapping[str, Tensor], numbers: Mapping[str, Tensor], is_other: bool) -> None:
        """Converts the state, as `module.double()` does: the same objects get these numbers, or their own, in a dtype.
        Gradients in the dtype before are dropped."""
        self._is_in_other_dtype = is_other
        if is_other:
            self._own_dtypes = {path: tensor.dtype for path, tensor in current.items()}
        for path, tensor in current.items():
            own = self._own_dtypes.get(path, tensor.dtype)
            dtype = self._script.other_dtypes.get(own, own) if is_other else own
            if path in numbers or dtype != tensor.dtype:
                value = numbers[path] if path in numbers else tensor.detach()
                tensor.grad = None
                tensor.data = value.to(dtype, copy=True)

    def _call_of(self, index: int) -> Call:
        """What the act's call is given; it may be the objects of the call before, with the numbers of this one."""
        act, own = self._script.acts[index], self._script.calls[index]
        before = self._made[-1].call if self._made else None
        if before is None or act.given not in HANDED_ON:
            assert own is not None
            return own
        if act.given != SAME and own is not None and not _rewrite(before, own, is_seen=act.given != UNSEEN):
            return own
        return before

    def _enact(self, act: Act, call: Call, before: Tree, leaves: Mapping[str, Tensor]) -> _Step:
        step = _Step()
        mode = _other(self._mode) if act.in_other_mode else self._mode
        if act.in_other_mode:
            set_mode(call, mode)

        def run() -> None:
            with ambient.put_back(), grad_mode(mode), _within(self._modes), _stopwatch(step) as timed, heard() as told:
                with _frozen(call) if act.freezes else contextlib.nullcontext():
                    self._do(step, act, call, before, leaves, timed)
            step.printed = "".join(told)

        with _recorded_warnings(step):
            _in_thread(run) if act.in_thread else run()
        if act.in_other_mode:
            set_mode(call, self._mode)
        return step

    def _do(
        self,
        step: _Step,
        act: Act,
        call: Call,
        before: Tree,
        leaves: Mapping[str, Tensor],
        timed: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        during = "call"
        try:
            if act.calls:
                self._made.append(_Made(call, step.tree, is_poor=True))
                with timed(), WITHIN[act.within]():
                    step.output = self._function(*call.args, **call.kwargs)
                self._note_outputs(step, before, call)
                self._made[-1] = _Made(call, step.tree, is_poor=False)
            during = "backward"
            if act.back and not self._made[-act.back].is_poor:
                with _recorded_arrivals({} if self._is_brief else leaves, step), timed():
                    retains = act.retains or bool(self._modes)  # for an act that goes back through what is freed here
                    into = every_other(leaves) if act.in_part else None
                    backward(self._made[-act.back].output, self._seed, self._moved, act.ends, retains, into)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: whatever the program does, it does not end the run
            step.error = Raised(error, during)
        finally:
            step.ambient = ambient.read(len(self._modes))

    def _note_outputs(self, step: _Step, before: Tree, call: Call) -> None:
        """Facts of the outputs and the alias graph, before backward frees or changes anything."""
        step.tree = walk(step.output, "output")
        names = {} if self._is_brief else _names(before.tensors | step.tree.tensors)
        step.outputs = self._looked(step.tree.tensors, names)
        if not self._is_brief:
            step.aliases = aliases(walk_call(call.function, call.args, call.kwargs).tensors | step.tree.tensors)

    def _keep(self, number: int, given: Mapping[str, Tensor], looked: Mapping[str, Seen]) -> None:
        """Keeps what the act gave, to be looked at again, as far as there is room: at least until the next act."""
        if not self._watch.looks_back:
            return
        news = {f"{path} of step {number}": tensor for path, tensor in given.items()}
        kept = self._held if _count(self._held) + _count(news) <= HELD_NUMBERS else {}
        self._held = kept | news
        self._news = set(news)
        copies = self._copies | {f"{path} of step {number}": seen.value for path, seen in looked.items()}
        self._copies = {path: value for path, value in copies.items() if path in self._held}

    def _with_leaks(self, observation: Observation) -> Observation:
        if self._script.another is None or observation.error is not None:
            return observation
        self._made.clear()
        self._held.clear()
        before = leaks.opened()
        with _recorded_warnings(_Step()), ambient.put_back(), grad_mode(self._mode), heard():
            try:
                held = leaks.held_after(self._once, self._script.another)
                grown = leaks.growth_bytes(self._once, self._script.another)
            except Exception:
                return dataclasses.replace(observation, held=("(further calls raise)",))
        held += leaks.left_by_each_call(before, leaks.opened())
        return dataclasses.replace(observation, held=held, growth_bytes=grown)

    def _once(self, call: Call) -> Any:
        """One more call, in training with its backward, of which nothing is kept."""
        output = self._function(*call.args, **call.kwargs)
        if self._mode == "train":
            backward(walk(output, "output"), self._seed)
            self._drop_gradients(leaves_of(call, walk_call(call.function, call.args, call.kwargs)))
        return output


@contextlib.contextmanager
def _autocast() -> Iterator[None]:
    """Autocast, on a GPU too where one is in use."""
    is_on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    with torch.autocast("cpu", AUTOCAST_DTYPE), torch.autocast("cuda", AUTOCAST_DTYPE, enabled=is_on_gpu):
        yield


WITHIN: Mapping[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "": contextlib.nullcontext,
    INFERENCE: torch.inference_mode,
    AUTOCAST: _autocast,
}
"""The contexts of calls, by their name in an act."""


@contextlib.contextmanager
def _frozen(call: Call) -> Iterator[None]:
    """Every other tensor that the function holds, and that requires a gradient, requires none within."""
    trained = [tensor for tensor in state_of(call.function).values() if tensor.requires_grad]
    for tensor in trained[::2]:
        tensor.requires_grad_(False)
    try:
        yield
    finally:
        for tensor in trained[::2]:
            tensor.requires_grad_(True)


def every_other(leaves: Mapping[str, Tensor]) -> list[Tensor] | None:
    """Every other leaf, each once; None where there are none, as a backward into nothing is refused."""
    found = [leaf for leaf in {id(leaf): leaf for leaf in leaves.values()}.values() if leaf.requires_grad]
    return found[::2] or None


def _relay_gradients(leaves: Mapping[str, Tensor]) -> None:
    """Gradients with the same numbers, of which the last two dimensions lie in the other order in memory."""
    for leaf in leaves.values():
        own = leaf.grad
        if own is not None and own.dim() > 1 and is_plain(own) and own.is_contiguous():
            leaf.grad = own.mT.contiguous().mT


def _count(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def _other(mode: str) -> str:
    return "infer" if mode == "train" else "train"


def _in_thread(run: Callable[[], None]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@contextlib.contextmanager
def _within(modes: Sequence[TorchDispatchMode]) -> Iterator[None]:
    """Within dispatch modes, the outermost first, which then see what is inside of loops and branches too."""
    with contextlib.ExitStack() as stack:
        if modes:
            stack.enter_context(plain_loops())
        for mode in modes:
            stack.enter_context(mode)
        yield


def _rewrite(before: Call, own: Call, is_seen: bool) -> bool:
    """Writes the arguments of one call into the tensors of another, whose versions grow if it `is_seen`; False, with
    nothing written, where it cannot."""
    old, new = (walk((call.args, call.kwargs), "input") for call in (before, own))
    if old.kinds != new.kinds or repr(old.scalars) != repr(new.scalars):
        return False
    pairs = [(tensor, new.tensors[path]) for path, tensor in old.tensors.items()]
    if not all(_is_rewritable(one, other) for one, other in pairs):
        return False
    with torch.no_grad():
        for tensor, value in pairs:
            (tensor if is_seen else tensor.data).copy_(value)
    return True


def _is_rewritable(tensor: Tensor, value: Tensor) -> bool:
    is_alike = (tensor.shape, tensor.dtype, tensor.stride()) == (value.shape, value.dtype, value.stride())
    is_own = is_plain(tensor) and tensor.is_leaf and tensor._base is None and not tensor.is_inference()
    return is_alike and is_own and is_allocated(tensor) and 0 not in tensor.stride()


def _names(tensors: Mapping[str, Tensor]) -> dict[int, str]:
    """Paths by the identity of their tensor; the first path where a tensor has several."""
    return {id(tensor): path for path, tensor in reversed(list(tensors.items()))}


def _gradients(leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{path}.grad": leaf.grad for path, leaf in leaves.items() if leaf.grad is not None}


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def _stopwatch(step: _Step) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Gives a context that adds the time spent in it to the step's."""

    @contextlib.contextmanager
    def timed() -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()
        finally:
            step.seconds += time.perf_counter() - start

    yield timed


class _Arrivals:
    """What the hooks of one leaf see in one backward."""

    def __init__(self, path: str, step: _Step) -> None:
        self._path, self._step = path, step
        self._count, self._is_sum = 0, True
        self._seen: Tensor | None = None

    def before(self, gradient: Tensor | None) -> None:
        """A hook of the leaf: a gradient is about to be accumulated. One that is None accumulates nothing."""
        self._seen = None if gradient is None else gradient.detach().clone()
        if gradient is not None:
            self._count += 1
            self._note()

    def after(self, leaf: Tensor, had: Tensor | None) -> None:
        """A hook that is called after accumulation."""
        self._step.hooks.append(self._path)
        if self._seen is None or leaf.grad is None or self._seen.layout != torch.strided:
            return
        expected = self._seen if had is None else had + self._seen
        self._is_sum &= expected.shape == leaf.grad.shape and _has_numbers(expected, leaf.grad.detach())
        self._note()

    def _note(self) -> None:
        told = "what was accumulated" if self._is_sum else "other numbers than were accumulated"
        self._step.arrivals[self._path] = f"{self._count} of {told}"


def _has_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape hold the same numbers; which NaN a NaN is counts for nothing."""
    return one.dtype == other.dtype and (_has_bits(one, other) or torch.equal(number_bits(one), number_bits(other)))


@contextlib.contextmanager
def _recorded_arrivals(leaves: Mapping[str, Tensor], step: _Step) -> Iterator[None]:
    """Notes what hooks of each leaf see, and the order in which gradients have been accumulated."""
    unique = {id(leaf): (path, leaf) for path, leaf in reversed(list(leaves.items()))}
    handles = []
    for path, leaf in reversed(unique.values()):
        if leaf.requires_grad:  # it still does: the call may have turned it off
            watch, had = _Arrivals(path, step), None if leaf.grad is None else leaf.grad.detach().clone()
            handles.append(leaf.register_hook(watch.before))
            handles.append(leaf.register_post_accumulate_grad_hook(functools.partial(watch.after, had=had)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _recorded_warnings(step: _Step) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            found = [warning for warning in caught if _is_of_program(warning)]
            step.warnings = {one.category.__name__: str(one.message) for one in reversed(found)}  # the first one stays


def _is_of_program(warning: warnings.WarningMessage) -> bool:
    if not issubclass(warning.category, UserWarning):
        return False
    place = Path(warning.filename)
    if place.is_relative_to(TORCH):
        return place.relative_to(TORCH).parts[0] not in COMPILING
    return not place.is_relative_to(OURS / "compiler") and not place.is_relative_to(OURS / "harness")
