"""Everything that a program can observe of a call: one `Observation` a step, three steps a run.

A run calls the same objects three times, so that what an earlier call left behind is always seen. Training: the loss
is `output.loss` where there is one, otherwise every differentiable output gets a cotangent that depends on the seed
and its path alone; gradients are set to None between the steps. Inference: under `torch.no_grad`.

Cotangents are odd multiples of 1/16 below 2, which every floating dtype represents, so that eager, compiled and
float64 runs are given the same numbers. Inputs that are not leaves are made afresh for each later step, because a
graph is freed by its backward; all other objects are the same ones.

Warnings: the categories of Python's `UserWarning` raised by the program count. Those raised from the files of
torch's compiling packages (`COMPILING`) tell of compilation and are left out. A warning that eager gives in one run
and not in the next (many are said once a process) is held against nobody.

A case's scenario is run in the place of its callable: what it returns and raises is what is observed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
import random
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from harness.clone import Call
from harness.errors import let_go
from harness.memory import Alias, aliases, bits, is_allocated, poke
from harness.tree import Tree, modules_in, walk, walk_call

COMPILING = ("_dynamo", "_inductor", "_functorch", "fx", "_subclasses", "_higher_order_ops", "_logging", "export")
TORCH = Path(torch.__file__).parent
OURS = Path(__file__).parent.parent
STEPS = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What a tensor is, its numbers apart. `view` is what it is a view of: a path, `(unobserved)`, or nothing.

    `view_chain` names the autograd nodes from a view down to its base, those of an autograd.Function as `custom`:
    how a backend names the node of a whole program is its own affair, how a view is replayed is not.
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
    """One step. Paths begin with output, input, parameter, buffer, closure or self."""

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
    """The previous step's outputs, looked at again after this step."""
    error: Raised | None
    warnings: dict[str, str]
    """By category, what the first one says."""
    random: dict[str, str]
    """A digest of each random stream after the step: the global ones, and the generators that the call reaches."""
    ambient: dict[str, bool]
    """The modes of the thread after the call: gradients, autocast, inference."""
    uses_random: bool
    hooks: tuple[str, ...]
    """The order in which gradients arrived at leaves."""
    seconds: float


@dataclass(slots=True)
class _Step:
    """What one step has produced so far; turned into an `Observation` at its end."""

    output: Any = None
    outputs: dict[str, Seen] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    aliases: frozenset[Alias] = frozenset()
    error: Raised | None = None
    hooks: list[str] = field(default_factory=list)
    warnings: dict[str, str] = field(default_factory=dict)
    ambient: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0


def observe(
    calls: Sequence[Call],
    mode: str,
    seed: int,
    compiled: Callable[..., Any] | None = None,
    scenario: Callable[..., Any] | None = None,
    is_poked: bool = True,
    moved: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Observation, ...]:
    """Runs the steps, one for each call of `calls` (the same call, as a rule), and watches.

    `compiled` is called in the place of the calls' function; it is the function's parameters and closure that are
    watched either way. A `scenario` is given the one or the other, and the arguments. `is_poked`: the last step's
    outputs are written to, to see what else changes. `moved` is what becomes of each cotangent.

    The random state is reset to `seed` before the first step. The objects of the calls are left as the program
    leaves them. Raises: KeyboardInterrupt only; whatever else the program raises is observed.
    """
    set_mode(calls[0], mode)
    seed_all(seed)
    earlier: Tree = Tree()
    seen = []
    for index, call in enumerate(calls):
        pokes = is_poked and index == len(calls) - 1
        function = call.function if compiled is None else compiled
        function = function if scenario is None else functools.partial(scenario, function)
        observation, earlier = _observed_step(call, function, mode, seed, earlier, pokes, moved)
        seen.append(observation)
    return tuple(seen)


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


def ambient_modes() -> dict[str, bool]:
    """The modes that a program may leave changed for what runs after it."""
    return {
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "inference": torch.is_inference_mode_enabled(),
    }


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


def backward(output: Tree, seed: int, moved: Callable[[Tensor], Tensor] | None = None) -> None:
    """Backward from the loss, or from every differentiable output with its cotangent, or what `moved` makes of it."""
    loss = output.tensors.get("output.loss")
    if loss is not None and loss.requires_grad and loss.numel() == 1:
        loss.backward()
        return
    ends = {path: tensor for path, tensor in output.tensors.items() if tensor.requires_grad}
    if ends:
        cotangents = [cotangent(path, end, seed) for path, end in ends.items()]
        torch.autograd.backward(list(ends.values()), [moved(one) if moved else one for one in cotangents])


def cotangent(path: str, tensor: Tensor, seed: int) -> Tensor:
    """The incoming gradient of an output: odd multiples of 1/16 below 2, by the seed and the path alone."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()) ^ seed)
    numbers = (2 * torch.randint(-16, 16, tensor.shape, generator=generator) + 1) / 16
    return numbers.to(tensor.device, tensor.dtype)


def leaves_of(call: Call, state: Tree) -> dict[str, Tensor]:
    """The tensors that receive gradients, by path: leaves of the state, and the leaves hidden behind the rest."""
    found: dict[str, Tensor] = {}
    for path, tensor in state.tensors.items():
        root = tensor if _history(tensor)[0] or tensor._base is None else tensor._base
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
    numbers = _numbers(tensor)
    if before is not None and _has_bits(before, numbers):
        numbers = before
    return Seen(facts_of(tensor, names), numbers)


def facts_of(tensor: Tensor, names: Mapping[int, str]) -> Facts:
    """The facts of a tensor now; `names` gives the paths of tensors that it may be a view of."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    is_leaf, has_grad_fn, chain = _history(tensor)
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
    )


def _history(tensor: Tensor) -> tuple[bool, bool, tuple[str, ...]]:
    """Whether a tensor is a leaf, whether it has a `grad_fn`, and its view chain.

    A view that a write through another view made invalid raises when it is asked, and says so in its chain.
    """
    try:
        is_leaf, node = tensor.is_leaf, tensor.grad_fn
    except RuntimeError:
        return False, True, ("invalid",)
    base = tensor._base
    if node is None or base is None:
        return is_leaf, node is not None, ()
    chain = []
    while node is not None and node is not base.grad_fn and not hasattr(node, "variable"):
        chain.append(_node_name(node))
        node = node.next_functions[0][0] if node.next_functions else None
    return is_leaf, True, tuple(chain)


def _node_name(node: torch.autograd.graph.Node) -> str:
    """The name of an autograd node of ATen's, which ends in a number or is C++'s; that of any other is `custom`."""
    name = node.name().rpartition("::")[2]
    return name if name[-1].isdigit() or "::" in node.name() else "custom"


def _numbers(tensor: Tensor) -> Tensor:
    """A copy of a tensor's numbers; of none of them where its storage was freed."""
    if not is_allocated(tensor):
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        plain = tensor.detach()
        plain = plain.to_dense() if plain.layout not in (torch.strided, torch.jagged) else plain
        plain = plain.values() if plain.is_nested else plain
        plain = plain.resolve_conj().resolve_neg()
        if plain.device.type != "cpu" and plain.numel() >= _least_on_host.get():
            return plain.cpu().contiguous()
        return plain.clone(memory_format=torch.contiguous_format)


def _has_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, bit for bit."""
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(bits(one).reshape(-1), bits(other).reshape(-1))  # a GPU takes 64 dimensions at most


def _observed_step(
    call: Call,
    function: Callable[..., Any],
    mode: str,
    seed: int,
    earlier: Tree,
    pokes: bool,
    moved: Callable[[Tensor], Tensor] | None,
) -> tuple[Observation, Tree]:
    before = walk_call(call.function, call.args, call.kwargs)
    leaves = leaves_of(call, before) if mode == "train" else {}
    for leaf in leaves.values():
        leaf.grad = None
    versions = {path: _version(tensor) for path, tensor in before.tensors.items()}
    numbers = {path: _numbers(tensor) for path, tensor in before.tensors.items()}
    random_before = random_state(before.generators)
    step = _run_step(call, function, functools.partial(backward, seed=seed, moved=moved), mode, before, leaves)
    if step.error is not None:
        let_go(step.error.error)
    random_after = random_state(before.generators)
    after = walk_call(call.function, call.args, call.kwargs)
    names = _names(before.tensors)
    watched = after.tensors | step.tree.tensors
    state = {path: look(tensor, names, numbers.get(path)) for path, tensor in after.tensors.items()}
    unchanged = {path for path, value in numbers.items() if path in state and state[path].value is value}
    observation = Observation(
        kinds=after.kinds | step.tree.kinds,
        scalars=after.scalars | step.tree.scalars,
        outputs=step.outputs,
        state=state,
        gradients={path: None if leaf.grad is None else look(leaf.grad, {}) for path, leaf in leaves.items()},
        versions={path: _version(before.tensors[path]) - version for path, version in versions.items()},
        written=frozenset(numbers.keys() - unchanged),
        aliases=step.aliases,
        earlier={path: look(tensor, {}) for path, tensor in earlier.tensors.items()},
        error=step.error,
        warnings=step.warnings,
        random=random_after,
        ambient=step.ambient,
        uses_random=random_before != random_after,
        hooks=tuple(step.hooks),
        pokes=poke(step.tree.tensors, watched | _gradients(leaves)) if pokes else {},
        seconds=step.seconds,
    )
    return observation, step.tree


def _run_step(
    call: Call,
    function: Callable[..., Any],
    go_back: Callable[[Tree], None],
    mode: str,
    before: Tree,
    leaves: dict[str, Tensor],
) -> _Step:
    step = _Step()
    during = "call"
    with _recorded_warnings(step), grad_mode(mode), _recorded_modes(step) as noted, _stopwatch(step) as timed:
        try:
            with timed(), noted():
                step.output = function(*call.args, **call.kwargs)
            _note_outputs(step, before, call)
            during = "backward"
            if mode == "train":
                with _recorded_arrivals(leaves, step.hooks), timed():
                    go_back(step.tree)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: whatever the program does, it does not end the run
            step.error = Raised(error, during)
    return step


def _note_outputs(step: _Step, before: Tree, call: Call) -> None:
    """Facts of the outputs and the alias graph, before backward frees or changes anything."""
    step.tree = walk(step.output, "output")
    watched = before.tensors | step.tree.tensors
    names = _names(watched)
    step.outputs = {path: look(tensor, names) for path, tensor in step.tree.tensors.items()}
    step.aliases = aliases(walk_call(call.function, call.args, call.kwargs).tensors | step.tree.tensors)


def _names(tensors: Mapping[str, Tensor]) -> dict[int, str]:
    """Paths by the identity of their tensor; the first path where a tensor has several."""
    return {id(tensor): path for path, tensor in reversed(list(tensors.items()))}


def _gradients(leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{path}.grad": leaf.grad for path, leaf in leaves.items() if leaf.grad is not None}


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def _recorded_modes(step: _Step) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Gives a context at whose end the modes are noted; puts autocast back, as `grad_mode` does gradients."""
    autocast = torch.is_autocast_enabled("cpu")

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        finally:
            step.ambient = ambient_modes()

    try:
        yield noted
    finally:
        torch.set_autocast_enabled("cpu", autocast)


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


@contextlib.contextmanager
def _recorded_arrivals(leaves: Mapping[str, Tensor], arrived: list[str]) -> Iterator[None]:
    """Notes the path of each leaf when its gradient has been accumulated."""
    unique = {id(leaf): (path, leaf) for path, leaf in reversed(list(leaves.items()))}
    handles = [
        leaf.register_post_accumulate_grad_hook(lambda _, path=path: arrived.append(path))
        for path, leaf in reversed(unique.values())
        if leaf.requires_grad  # it still does: the call may have turned it off
    ]
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
