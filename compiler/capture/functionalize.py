"""`capture`: a call, recorded as a functional ATen graph with a signature."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch._higher_order_ops.torchbind import call_torchbind
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from assay.compiler.capture.aliasing import Aliases, Returned, WriteKind, history_of, kind_of_write
from assay.compiler.capture.ambient import in_forward_mode, levels_kept, preserved
from assay.compiler.capture.decompositions.checked_by_eager import refusing_as_eager
from assay.compiler.capture.decompositions.kept_whole import interpolation_whole
from assay.compiler.capture.decompositions.product_gradients import products_by_values
from assay.compiler.capture.inputs import Call, CallLeaf
from assay.compiler.capture.replayed_warnings import warned
from assay.compiler.capture.shown_results import showing
from assay.compiler.capture.unrecorded_writes import UnrecordedWrites
from assay.compiler.capture.user_code.printed_values import record_print as record_print  # which registers it
from assay.compiler.capture.user_code.recorded_functions import functions_recorded
from assay.compiler.capture.user_code.rewritten_calls import UserCalls
from assay.compiler.capture.user_code.script_objects import record_method as record_method  # so does each of these
from assay.compiler.capture.user_code.token_calls import record_call_with_token as record_call_with_token
from assay.compiler.capture.user_code.triton_kernels import record_launch as record_launch  # which registers it
from assay.compiler.capture.wrapper_views import ALIASES, check_copied
from assay.compiler.errors import Unexpected, Unsupported
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.given_decompositions import raise_what_they_raised
from assay.compiler.ir.graph.roles import (
    Base,
    Begins,
    Bump,
    CallInput,
    Detach,
    Effect,
    GradMode,
    Inference,
    Input,
    InputRole,
    Mutation,
    OutputRole,
    Replaced,
    Result,
    Same,
    Shared,
    Signature,
    UserOutput,
    Varies,
    View,
)
from assay.compiler.ir.graph.trace import Trace
from assay.compiler.ir.graph.writes.storage_offsets import begins
from assay.compiler.ir.graph.writes.watching import Recording
from assay.compiler.ir.tensors.in_place import version
from assay.compiler.ir.tensors.layout.strides import extent, overlaps_itself, varying
from assay.compiler.ir.tensors.mutating_operators import functional_elem
from assay.compiler.ir.tensors.wrappers import inner_tensors, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument
from assay.compiler.torch_compat import Decompositions

ONLY_DATA_TELLS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
"""What torch raises for a program that cannot be run on tensors without data."""

LIMITS_OF_RECORDING = {
    "convert all Tensors to FakeTensors": "the program reads a tensor that is none of its arguments",
    "self.shape_env must not be None": "the program makes a jagged tensor where no size is a symbol",
    "Found a custom (non-ATen) operator": "the program calls an operator of its own that returns an alias",
    "mutate tensors with frozen storage": "the program writes what an input was before it was given other memory",
    "mutation on a view chain": "the program writes a view that as_strided made of another view",
    "tried to directly modify sizes": "the program changes, in place, a shape that has symbols",
    "Cannot call storage_offset() on tensor with symbolic": "the program changes, in place, a shape that has symbols",
    "isIntList()": "the program gives symbolic sizes to an operator that torch records with numbers alone",
    "Current active mode": "the program calls a higher-order operator, whose functions no graph above autograd holds",
}
"""Limits of torch's recording, by a part of what it raises: neither the program's errors nor ours."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An input on the tape: `leaf` is what gradients are taken of, `argument` what the program was given.

    `version`, `storage`, `offset` and `required_grad` are what the argument had before the program ran; `history` is
    what `root` had: the argument itself, or the memory that it shares with other inputs, of which it is a view.
    """

    role: CallInput
    leaf: torch.Tensor
    argument: torch.Tensor
    version: int
    storage: int
    offset: int | torch.SymInt
    required_grad: bool
    history: object
    root: torch.Tensor
    is_shared: bool

    @staticmethod
    def of(role: CallInput, leaf: torch.Tensor, argument: torch.Tensor, root: torch.Tensor, is_shared: bool) -> Bound:
        storage, offset = argument.untyped_storage()._cdata, argument.storage_offset()
        grad, history = argument.requires_grad, history_of(root)
        return Bound(role, leaf, argument, version(argument), storage, offset, grad, history, root, is_shared)


def capture(
    call: Call, decompositions: Decompositions, pre_dispatch: bool = False, keeps_lines: bool = False
) -> Captured:
    """Runs the call once on fake tensors and records what it does, what it writes and what it returns.

    With `pre_dispatch` it is recorded above autograd, so that nothing of it can be differentiated. With `keeps_lines`
    nodes know the lines of the forwards that they come from.

    Raises: Unsupported for what the signature cannot say; the errors that eager itself would raise.
    """
    if in_forward_mode():
        raise Unsupported("forward-mode differentiation is on: no kernel takes tangents along")
    for leaf in call.leaves:
        _check_layout(leaf.fake, "is given")
    trace = Trace(call.fake_mode, decompositions, pre_dispatch, _functions_of(call, decompositions, pre_dispatch))
    if keeps_lines:
        trace.keep_lines()
    fakes = [leaf.fake for leaf in call.leaves]
    whole = interpolation_whole(call.fake_mode, fakes)
    with preserved(), trace.recording(), whole, refusing_as_eager(), products_by_values():
        shared = [_bind_shared(trace, call, group) for group in call.overlaps]
        views = {bound.role: bound for _, members in shared for bound in members}
        bound = [views.get(leaf.role) or _bind(trace, leaf, _name_in_graph(call, leaf.role)) for leaf in call.leaves]
        flat: list[object] = [one.argument if isinstance(one, Bound) else one for one in bound]
        for one in bound:
            if isinstance(one, Bound):
                trace.take(one.argument)
        grad_mode = torch.is_grad_enabled()
        with warned() as warnings:
            results = _run(trace, call, flat)
        trace.mark_refusals()
        _check_gradients(bound, results)
        for node in trace.graph.nodes:
            _check_layout(node.meta.get("val"), f"makes, by {node.target},")
        _check_objects(trace, call)
        changed = [GradMode(torch.is_grad_enabled())] if torch.is_grad_enabled() != grad_mode else []
        bases = dict(base for base, _ in shared)
        captured = _sign(
            trace, [one for one in bound if isinstance(one, Bound)], bases, _roles(call, bases), results,
            [*warnings, *changed],
        )  # fmt: skip
        _check_shared_views(call, captured.signature.results)
        return showing(captured, results, flat) if call.shows_results else captured


def _functions_of(call: Call, decompositions: Decompositions, pre_dispatch: bool) -> Recording | None:
    """What is open while functions are recorded that operators are given; None where the graph holds none."""
    if not call.holds_functions:
        return None
    return functools.partial(functions_recorded, call.fake_mode, decompositions, pre_dispatch)


def _run(trace: Trace, call: Call, arguments: list[object]) -> list[object]:
    """Raises: Unexpected with the program's own error, which eager will raise if it is one of the program; Unsupported
    for a program that no fake tensors can run; the error of a decomposition that the caller gave."""
    try:
        rewriting = (
            nullcontext() if trace.pre_dispatch else UserCalls(trace.as_eager)
        )  # what it makes of composite operators
        with (
            levels_kept(),
            trace.noting_modes(),
            rewriting,
            UnrecordedWrites(trace.assign_data),
            trace.noting_offsets(),
        ):
            return list(call.function(arguments))
    except Unsupported:
        raise
    except ONLY_DATA_TELLS as error:
        raise Unsupported(f"recording it needs its data: {type(error).__name__}: {error}") from error
    except Exception as error:
        raise_what_they_raised(error)
        if (limit := _limit_of(error)) is not None:
            raise Unsupported(f"{limit}: {error}") from error
        raise Unexpected(f"recording it failed with {type(error).__name__}: {error}") from error


def _limit_of(error: Exception) -> str | None:
    """The limit that torch's own recording tells of by an error, if it is one."""
    return next((limit for part, limit in LIMITS_OF_RECORDING.items() if part in str(error)), None)


def _check_gradients(bound: Sequence[object], results: Sequence[object]) -> None:
    """Raises: Unsupported for a program that leaves gradients at its inputs, or keeps that of a result."""
    leaves = (one.leaf for one in bound if isinstance(one, Bound))
    if any(leaf.grad is not None for leaf in leaves if leaf.is_leaf):  # else it was none, or is one that was written
        raise Unsupported("the program calls backward")
    if any(isinstance(result, torch.Tensor) and result.retains_grad for result in results):
        raise Unsupported("the program keeps the gradient of a result")


def _check_layout(value: object, how: str) -> None:
    """Raises: Unsupported for a sparse tensor, which has no memory that results could be told to share; under
    functionalization torch ends the process where it meets some.
    """
    if isinstance(value, torch.Tensor) and value.layout not in (torch.strided, torch.jagged):
        raise Unsupported(f"the program {how} a tensor of layout {value.layout}")


def _check_objects(trace: Trace, call: Call) -> None:
    """Raises: Unsupported for a draw from a generator that the call was not given: made anew by each call, it would
    draw on in the graph. So for a number that a script object gives, which nobody looks after.
    """
    if call.constants is None:
        return
    for node in trace.graph.find_nodes(op="call_function", target=call_torchbind):
        if isinstance(node.meta.get("val"), int | float):
            raise Unsupported("the program asks a script object for a number, which is another for another state of it")
    for node in trace.graph.find_nodes(op="get_attr"):
        value = getattr(trace.tracer.root, node.target, None)
        if isinstance(value, torch.Generator) and not any(value is constant for constant in call.constants):
            raise Unsupported("the program draws from a generator that is none of its arguments")


def _roles(call: Call, bases: dict[Shared, torch.Tensor]) -> tuple[InputRole, ...]:
    """The roles of the graph's inputs, in the order in which they were bound."""
    inside = {member for base in bases for member in base.of}
    return (*bases, *(leaf.role for leaf in call.leaves if leaf.role not in inside))


def _name_in_graph(call: Call, role: CallInput | Shared) -> str:
    """What the graph calls an input: what the call says, or else what its role tells."""
    if call.names:
        return call.names[role.index]
    return f"shared_{role.index}" if isinstance(role, Shared) else _identifier(role)


def _bind(trace: Trace, leaf: CallLeaf, name: str) -> Bound | torch.SymInt | int:
    """One input as a functional tensor. Eager lets a program write what is no leaf, so that is bound through a copy."""
    if not isinstance(leaf.fake, torch.Tensor):
        return trace.add_input(name, leaf.fake)
    with _made_outside(leaf.is_inference):
        wrapped, argument = _bind_tensor(trace, name, leaf.fake, leaf.requires_grad, leaf.is_leaf)
    if argument.is_inference():
        trace.own(argument, leaf.role)
    return Bound.of(leaf.role, wrapped, argument, argument, is_shared=False)


@contextmanager
def _made_outside(is_inference: bool) -> Iterator[None]:
    """While it is open, what stands for an input is made outside of inference mode, as the input was."""
    if is_inference or not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def _bind_tensor(
    trace: Trace, name: str, fake: torch.Tensor, requires_grad: bool, is_leaf: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        plain = _outside(trace, fake)
    if isinstance(plain, FakeTensor) and isinstance(fake, FakeTensor):
        if fake.dim() == 0:
            plain.item_memo = fake.item_memo
        plain.nested_int_memo = fake.nested_int_memo  # the size of rows to which the tensor holds the offsets
    wrapped = trace.wrap(trace.add_input(name, plain), requires_grad)
    return wrapped, trace.as_non_leaf(wrapped) if requires_grad and not is_leaf else wrapped


def _bind_shared(trace: Trace, call: Call, group: tuple[int, ...]) -> tuple[tuple[Shared, torch.Tensor], list[Bound]]:
    """Inputs that overlap, as views of one tensor over the memory that they share: its role and leaf, and theirs.

    Raises: Unsupported where no one tensor can stand for all of them as autograd knows them.
    """
    leaves = [call.leaves[position] for position in group]
    fakes = [leaf.fake for leaf in leaves if isinstance(leaf.fake, torch.Tensor)]
    if len({fake.dtype for fake in fakes}) > 1:
        raise Unsupported("inputs of two dtypes overlap in memory and one is written")
    differentiable = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves)
    base = _common_base(fakes) if differentiable else _flat_base(trace, fakes)
    role = Shared(tuple(leaf.role for leaf in leaves), None if differentiable else int(base.numel()))
    grad = differentiable and base.requires_grad
    with _made_outside(all(leaf.is_inference for leaf in leaves)):
        wrapped, whole = _bind_tensor(trace, _name_in_graph(call, role), base, grad, base.is_leaf)
    bound = []
    for leaf, fake in zip(leaves, fakes, strict=True):
        with _made_outside(leaf.is_inference):
            argument = whole if fake is base else whole.as_strided(fake.shape, fake.stride(), fake.storage_offset())
        trace.own(argument, leaf.role)
        bound.append(Bound.of(leaf.role, wrapped, argument, whole, is_shared=True))
    return (role, wrapped), bound


def _common_base(fakes: list[torch.Tensor]) -> torch.Tensor:
    """The tensor of which autograd knows all inputs as views. It begins where its storage does, from where the offsets
    of views count, so that a value computed of it can stand in its place.
    """
    bases = {id(base): base for fake in fakes for base in [fake if fake._base is None else fake._base]}
    base = next(iter(bases.values()))
    if len(bases) > 1 or not all(fake.requires_grad for fake in fakes) or base.storage_offset() != 0:
        raise Unsupported("inputs share memory that autograd does not know as one tensor's, and one is written")
    return base


def _flat_base(trace: Trace, fakes: list[torch.Tensor]) -> torch.Tensor:
    """A flat tensor from the beginning of the storage to the highest element that any of the inputs holds."""
    ends = [int(fake.storage_offset() + extent(fake.shape, fake.stride())) for fake in fakes if fake.numel()]
    with trace.paused(), torch.no_grad():
        return torch.empty(max(ends, default=0), dtype=fakes[0].dtype, device=fakes[0].device)


def _identifier(role: CallInput) -> str:
    name = re.sub(r"\W", "_", getattr(role, "name", ""))
    return name if name.isidentifier() else f"input_{role.index}{name}"


def _outside(trace: Trace, fake: torch.Tensor) -> torch.Tensor:
    """A fake tensor over the same fake memory that has no autograd history of its own."""
    with trace.paused():
        return fake.detach()


def _storage(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata


def _sign(
    trace: Trace,
    bound: list[Bound],
    bases: dict[Shared, torch.Tensor],
    inputs: tuple[InputRole, ...],
    results: list[object],
    ambient: Sequence[Effect],
) -> Captured:
    for one in bound:
        _check_kept(trace, one)
    replaced = [one for one in bound if _is_replaced(trace, one)]
    staying = [one for one in bound if one not in replaced]
    lying = [*staying, *(_as_it_was(trace, one) for one in replaced)]
    mutations = {one.role: _mutation(trace, one) for one in lying if _is_written(trace, one) and _is_kept(trace, one)}
    storages = frozenset(_storage(value) for one in lying for value in (one.argument, *inner_tensors(one.argument)))
    arguments = {one.role: one.argument for one in bound}
    owners, members = _owners(trace, staying, bases), _members(trace, staying)
    aliases = Aliases(trace, owners, storages, members, {one.role: one.argument for one in bound})
    aliases.replaced.update((one.role, one.argument) for one in replaced)
    bumps = [Bump(one.role, _version_growth(trace, one)) for one in staying if one.role not in mutations]
    effects = [
        *aliases.restrides(arguments),
        *_detached(bound),
        *aliases.resizes({one.role: one.argument for one in staying}),
        *(bump for bump in bumps if bump.by),
        *_relied_on(trace, bound),
        *ambient,
    ]
    made = aliases.results(results, list(map(_other_memory, replaced)))
    given, made = made[len(results) :], made[: len(results)]
    for one, by in zip(replaced, given, strict=True):
        effects += aliases.replacement(one.role, by, version(one.argument) - one.version, mutations.get(one.role))
    effects += [*aliases.layouts(), *_inference(aliases, results, made), *_varying(made, results)]
    returned: dict[OutputRole, Returned] = {**_writes(trace, lying, bases, mutations), **aliases.returned}
    seen = {role for role, value in returned.items() if isinstance(role, Mutation) and isinstance(value, torch.Tensor)}
    differentiable = frozenset(aliases.differentiable | seen)
    if differentiable:
        _check_views_before_growth(made, effects)
        _check_moved_writes(mutations, effects)
    signature = Signature(inputs, tuple(returned), made, differentiable, tuple(effects))
    leaves: dict[CallInput | Shared, torch.Tensor] = {b: leaf for b, leaf in bases.items() if leaf.requires_grad}
    own = [one for one in bound if one.required_grad and not one.is_shared]
    leaves |= {one.role: one.leaf for one in own if one.leaf.requires_grad}
    return Captured(trace, signature, leaves, returned, tuple(one.argument for one in bound))


def _relied_on(trace: Trace, bound: Sequence[Bound]) -> Iterator[Begins]:
    """What the call relies on of where its inputs begin in their storages."""
    for one in bound:
        yield from begins(one.role, one.offset, trace.divisors_of(one.argument))


def _varying(made: Sequence[Result], results: Sequence[object]) -> Iterator[Varies]:
    """The results that have symbols for sizes, but for the inputs themselves."""
    for index, value in enumerate(results):
        if isinstance(value, torch.Tensor) and not isinstance(made[index], Input) and not is_wrapper(value):
            if dims := varying(value):
                yield Varies(index, dims)


def _check_kept(trace: Trace, one: Bound) -> None:
    """Raises: Unsupported where the program made something else of an input than written memory.

    Cost: of every input, a few flags.
    """
    for inner in inner_tensors(one.argument):
        torch._sync(inner)
        if torch._functionalize_was_storage_changed(functional_elem(inner)) and not _is_replaced(trace, one):
            raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
        if inner is not one.argument and trace.restrides_of(inner):
            raise Unsupported("the program changes the shape or strides of an inner tensor of an input in place")
    if _storage(one.argument) != one.storage:
        raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
    if _is_written(trace, one) and any(map(overlaps_itself, inner_tensors(one.argument))):
        raise Unsupported("the program writes an input whose memory overlaps itself")
    if is_wrapper(one.argument) and _is_written(trace, one):
        check_copied(one.argument, trace)
    if one.argument.requires_grad and not one.required_grad and history_of(one.argument) is None:
        raise Unsupported("the program makes an input require grad")


def _is_written(trace: Trace, one: Bound) -> bool:
    elems = map(functional_elem, inner_tensors(one.argument))
    written = any(map(torch._functionalize_has_data_mutation, elems))  # type: ignore[attr-defined]
    return written and (not one.is_shared or trace.writes_by(one.role) > 0)


def _is_replaced(trace: Trace, one: Bound) -> bool:
    """Whether an input is another tensor's memory after the call. Raises: Unsupported where more than that happened.

    One that was given its own memory back is not.
    """
    found = trace.replacement_of(one.argument)
    if found is None:
        return False
    is_other = one.is_shared or trace.restrides_of(one.argument) or history_of(one.root) is not one.history
    if is_other or (one.required_grad and _is_read_before(trace.node_of(found.old))):
        raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
    return True


def _is_read_before(alias: torch.fx.Node) -> bool:
    """Whether an input was read or written before this alias of it was taken. What autograd knows of that is lost: a
    leaf that is set begins a history of its own."""
    if alias.op == "placeholder":
        return len(alias.users) > 0
    of = node_argument(alias, 0) if alias.target in ALIASES else alias
    return of.op != "placeholder" or len(of.users) > 1


def _as_it_was(trace: Trace, one: Bound) -> Bound:
    """What stands for the memory that an input had before it was given other memory; it is read while that happened."""
    found = trace.replacement_of(one.argument)
    assert found is not None
    return replace(one, argument=found.old, version=version(found.old) - (found.version - one.version))


def _other_memory(one: Bound) -> torch.Tensor:
    """An alias of what an input is after its storage was replaced, of which nobody takes a gradient."""
    with torch.no_grad():
        return one.argument.detach()


def _is_kept(trace: Trace, one: Bound) -> bool:
    """Whether what was written is there after the call: a storage that was freed holds nothing."""
    sizes = trace.storage_sizes_of(one.argument)
    return not sizes or sizes[-1] != 0 or history_of(one.root) is not one.history


def _mutation(trace: Trace, one: Bound) -> Mutation:
    kind = _kind(one)
    return Mutation(one.role, kind, 0 if kind == "hidden" else _version_growth(trace, one))


def _kind(one: Bound) -> WriteKind:
    """How autograd took the writes: of an input that requires grad, its history tells."""
    if history_of(one.root) is not one.history:
        return "seen"
    kind = kind_of_write(one.argument)
    if version(one.argument) == one.version and not one.argument.is_inference():
        return "hidden"
    return "no_grad" if kind == "seen" and one.required_grad else kind


def _version_growth(trace: Trace, one: Bound) -> int:
    """By how much the version grew, beside the calls that changed strides, which are made on the caller's tensor."""
    growth, writes = version(one.argument) - one.version, trace.writes_by(one.role)
    if one.argument.is_inference():  # it has no version
        growth = writes
    elif one.is_shared:  # all that share memory have one version
        growth = min(growth, writes)
    restrides = len(trace.restrides_of(one.argument))
    if torch.is_inference_mode_enabled():  # where autograd does not count those of a composite operator
        growth = max(growth, restrides)
    return growth - restrides


def _owners(
    trace: Trace, bound: list[Bound], bases: dict[Shared, torch.Tensor]
) -> dict[torch.fx.Node, CallInput | Shared]:
    """By the node that holds its value after the call: each input, and the memory that inputs share.

    Raises: Unsupported where two inputs have one: of `torch.conj_physical(x, out=y)` with real numbers `y` is `x`.
    """
    owners: dict[torch.fx.Node, CallInput | Shared] = {}
    for one in bound:
        node = trace.node_of(one.argument)
        if owners.setdefault(node, one.role) != one.role:
            raise Unsupported("the program writes the very value of an input to another")
    for one in bound:
        if one.is_shared:
            node = trace.node_of(one.argument)
            base = next(base for base in bases if one.role in base.of)
            root = node_argument(node, 0) if node.target is torch.ops.aten.as_strided.default else node
            owners.setdefault(root, base)
    return owners


def _members(trace: Trace, bound: list[Bound]) -> dict[object, tuple[CallInput, ...]]:
    """The inputs that are views of memory that they share, by the call that makes them of it."""
    members: dict[object, tuple[CallInput, ...]] = {}
    for one in bound:
        node = trace.node_of(one.argument)
        if one.is_shared and node.target is torch.ops.aten.as_strided.default:
            key = (node.target, node.args[1:])
            members[key] = (*members.get(key, ()), one.role)
    return members


def _detached(bound: list[Bound]) -> Iterator[Effect]:
    """The inputs that were cut off from their history in place."""
    for one in bound:
        if one.required_grad and not one.argument.requires_grad:
            yield Detach(one.role)


def _check_views_before_growth(results: Sequence[Result], effects: Sequence[Effect]) -> None:
    """Raises: Unsupported for a view of sizes that the graph computes, if it is made before versions of inputs grow
    and the graph saves inputs for backward. Their versions have to be grown by then.
    """
    is_behind = any(isinstance(result, View) and result.is_early and result.needs_sizes for result in results)
    if is_behind and any(isinstance(effect, Bump) for effect in effects):
        raise Unsupported("the program returns a view of symbolic sizes that was taken before a view was changed")


def _check_moved_writes(mutations: Mapping[CallInput, Mutation], effects: Sequence[Effect]) -> None:
    """Raises: Unsupported where an input is given the memory of another that is written, as gradients are recorded.
    Versions of both would be asked for in backward, and one of them is that of the write."""
    if any(isinstance(one, Replaced) and getattr(one.by, "of", None) in mutations for one in effects):
        raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")


def _check_shared_views(call: Call, results: tuple[Result, ...]) -> None:
    """Raises: Unsupported for a view of inputs that overlap and require grad, taken where gradients are off. Autograd
    may refuse to look at such a view once another of them has been written, and nothing here knows of that. In
    inference mode it knows none.
    """
    if torch.is_inference_mode_enabled():
        return
    required = any(call.leaves[position].requires_grad for group in call.overlaps for position in group)
    if required and not torch.is_grad_enabled() and any(isinstance(result, View) for result in results):
        raise Unsupported("the program returns a view of inputs that require grad and overlap, without gradients")


def _inference(aliases: Aliases, results: Sequence[object], made: Sequence[Result]) -> Iterator[Inference]:
    """The outputs and views that are made in another mode than that of the call.

    Raises: Unsupported for a wrapper, and in inference mode for what is differentiated.
    """
    is_on = torch.is_inference_mode_enabled()
    pairs = [(role, value) for role, value in aliases.returned.items() if isinstance(role, UserOutput | Base)]
    for role, value in pairs:
        if not isinstance(value, torch.Tensor) or value.is_inference() == is_on:
            continue
        if role in aliases.differentiable or is_wrapper(value):
            raise Unsupported(
                "the program makes a wrapper, or what requires grad, outside of the call's inference mode"
            )
        yield Inference(role, not is_on)
    for index, result in enumerate(results):
        is_of_output = isinstance(view := made[index], View) and isinstance(view.of, UserOutput | Base | Same)
        if is_on and is_of_output and isinstance(result, torch.Tensor) and not is_wrapper(result):
            if result._base is not None and not result.is_inference():
                yield Inference(UserOutput(index), False)


def _written_as_one(
    base: Shared, roots: Mapping[CallInput, torch.Tensor], mutations: Mapping[CallInput, Mutation]
) -> list[Mutation]:
    """The writes of inputs that share memory, where the whole of it is written back: autograd saw all of them.

    Eager's gradient of the base is changed where a view was written alone. Gradients by each view, added up, would
    have zeros beside it.
    """
    written = [mutations[member] for member in base.of if member in mutations]
    root = roots[base.of[0]]
    is_on_tape = base.extent is None and root.requires_grad and not root.is_leaf
    return written if is_on_tape and all(mutation.kind == "seen" for mutation in written) else []


def _writes(
    trace: Trace, bound: list[Bound], bases: Iterable[Shared], mutations: dict[CallInput, Mutation]
) -> dict[OutputRole, Returned]:
    """The values to write back: on the tape where autograd saw the write, as plain nodes elsewhere."""
    writes: dict[OutputRole, Returned] = {}
    roots = {one.role: one.root for one in bound}
    whole = {base: written for base in bases if (written := _written_as_one(base, roots, mutations))}
    for base, written in whole.items():
        writes[Mutation(base, "seen", sum(mutation.writes for mutation in written))] = roots[base.of[0]]
    members = {mutation.of for written in whole.values() for mutation in written}
    for one in bound:
        mutation = mutations.get(one.role)
        if mutation is not None and one.role not in members:
            on_tape = mutation.kind == "seen" and one.argument.requires_grad and not one.argument.is_leaf
            if on_tape and one.is_shared and not one.required_grad:
                raise Unsupported("inputs that overlap begin to require grad by a write")
            writes[mutation] = one.argument if on_tape else trace.node_of(one.argument)
    return writes
