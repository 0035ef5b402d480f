"""The calling convention, rendered from a signature: prologue, the graph, write-backs, replayed views, results.

    def call(args):
        keep_0 = args[0]
        (base_0, new_0) = run(args)
        with no_grad(): keep_0.copy_(new_0)
        result_0 = aten_view(base_0, [-1])
        return (result_0, keep_0)

When gradients flow, `run` is the `apply` of an autograd function whose two halves are rendered here too.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar

import torch
from torch.autograd.graph import increment_version

from compiler.ir.graph.number_range import number_inputs, number_limit, zero_inputs
from compiler.ir.graph.roles import (
    Base,
    Begins,
    Buffer,
    Bump,
    CallInput,
    Constant,
    Detach,
    Effect,
    Freed,
    Gradient,
    GradMode,
    GraphCall,
    Input,
    InputRole,
    Layout,
    Mutation,
    OutputRole,
    Parameter,
    Program,
    Restride,
    Result,
    Same,
    Saved,
    Shared,
    Signature,
    Size,
    Tangent,
    UserInput,
    UserOutput,
    View,
    ViewStep,
    Warned,
    Written,
)
from compiler.ir.graph.trace import UNCHECKED, is_view
from compiler.ir.tensors.overlap import is_alias, pairs_of
from compiler.ir.tensors.strides import has_symbols, hint, is_known
from compiler.ir.typed_nodes import node_argument
from compiler.runtime.backward_inputs import BackwardInputs, Expected
from compiler.runtime.call import (
    GradOff,
    apply_of,
    copy_each,
    in_anomaly_mode,
    in_autocast,
    in_batch,
    in_transform,
    is_batch,
    is_grad_enabled,
    untraced,
    warn_from,
    without_autocast,
)
from compiler.runtime.higher_order import Roots, new_anchor
from compiler.runtime.partial_backward import Part, PartialBackward
from compiler.torch_compat import BEFORE_2_13
from compiler.torch_stubs import reinterpret_tensor as reinterpret

aten = torch.ops.aten

METHODS = {
    aten.as_strided.default: "as_strided",
    aten.detach.default: "detach",
    aten.diagonal.default: "diagonal",
    aten.expand.default: "expand",
    aten.permute.default: "permute",
    aten.select.int: "select",
    aten.squeeze.default: "squeeze",
    aten.squeeze.dim: "squeeze",
    aten.squeeze.dims: "squeeze",
    aten.t.default: "t",
    aten.transpose.int: "transpose",
    aten.unbind.int: "unbind",
    aten.unfold.default: "unfold",
    aten.unsqueeze.default: "unsqueeze",
    aten.view.default: "view",
    aten.view.dtype: "view",
}
"""Views that are a method of the tensor, with the operator's own arguments."""

SPREAD = (aten.expand.default, aten.permute.default, aten.view.default)
"""Those whose sizes or dimensions cost half a microsecond less as arguments of their own than as a list."""

WATCHED = "the gradient of an input that it writes is kept or has a hook"
MOST_INLINE = 4
"""Written inputs up to which each has a line that asks whether it is an inference tensor: beyond, they share one."""
INFERENCE = "it writes an inference tensor outside of inference mode"
CURRENT = "another GPU is the current one than when it was compiled"
NEGATIVE_ZERO = "a Python float is -0.0 where its guard is that it is zero"
BEYOND = "a Python integer is so large that arithmetic with it may leave 64 bits"
ANOMALY = "anomaly mode is on, and names the line of each operation"
LITERALS = (int, float, bool, str, type(None))

PAIRS_INLINE = 4
"""Up to how many pairs of inputs a call asks itself whether they share a storage."""

Made = TypeVar("Made", bound=Callable[..., object])


@dataclass(slots=True)
class Source:
    """Python text being written, and the objects that it names."""

    lines: list[str] = field(default_factory=list)
    namespace: dict[str, object] = field(default_factory=dict)
    is_grad_off: bool = False
    pieces: dict[tuple[str, str, bool], tuple[str, set[int]]] = field(default_factory=dict)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def bind(self, name: str, value: object) -> str:
        """A name for `value`, `name` or `name_1`, `name_2`, ... when that is taken."""
        unique, count = name, 0
        while self.namespace.get(unique, value) is not value:
            count += 1
            unique = f"{name}_{count}"
        self.namespace[unique] = value
        return unique

    def unrecorded(self) -> str:
        """What stands before a statement that autograd must not record; nothing where the call is made so anyway."""
        return "" if self.is_grad_off else f"with {self.bind('no_grad', GradOff)}(): "

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class AmbientNeeds:
    """The modes that must be switched around the graph.

    They are gradients that no one asked for, or that the program itself switched on, and casts that are in the graph
    already. Inference mode is one, where all that the program makes was made in one of its own.

    `hooks_off`: hooks on saved tensors are parts of the graphs.

    `inference`: the inputs, by position, that are inference tensors. `is_grad_off`: gradients are off wherever the call
    is made.
    `is_guarded`: the call looks whether its written inputs overlap, and is made elsewhere if they do. `frozen`: as is a
    call where an input at these positions, which required no grad, does. `current`: the GPU that has to be the current
    one, as what is made there was recorded to be on it.
    """

    grad_off: bool
    autocast_off: bool
    grad_on: bool = False
    is_grad_off: bool = False
    inference_on: bool = False
    is_guarded: bool = True
    inference: tuple[int, ...] = ()
    hooks_off: bool = False
    frozen: tuple[int, ...] = ()
    current: int | None = None


def emit_call(program: Program, needs: AmbientNeeds) -> Source:
    """The function `call(args)` of a program without gradients; the namespace still lacks `graph`."""
    signature = program.signature
    source = Source(namespace={"torch": torch}, is_grad_off=needs.is_grad_off)
    _emit_head(source, program, needs)
    given = f"{source.bind('without_history', without_history)}(args)" if _scatters_by_strides(program) else "args"
    _emit_run(source, program, signature.outputs, f"graph({given})", needs)
    _emit_epilogue(source, signature)
    return source


def emit_differentiable_call(
    forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots, apart: Collection[InputRole] = ()
) -> Source:
    """`call(args)` over an autograd function; the namespace still lacks its graphs and `higher_order`.

    `apart` are inputs that require grad and get none: autograd must not come to what is behind them.
    """
    signature = forward.signature
    source = Source(namespace={"torch": torch, "apply_of": apply_of})
    source.line(0, "class Graph(torch.autograd.Function):")
    _emit_forward_half(source, forward, backward, needs, roots)
    _emit_backward_half(source, forward, backward, needs, roots)
    source.line(0, f"{source.bind('untraced', untraced)}(Graph.backward)")
    source.line(0, "quick_apply = apply_of(Graph)")
    _emit_head(source, forward, needs)
    source.line(1, f"if {source.bind('in_anomaly_mode', in_anomaly_mode)}(): return eager(args, {ANOMALY!r})")
    visible = tuple(role for role in signature.outputs if not isinstance(role, Saved))
    around = AmbientNeeds(grad_off=False, autocast_off=False, grad_on=needs.grad_on, hooks_off=needs.hooks_off)
    checked = _saved_as_written(forward)
    if checked:
        source.line(1, "written = []")
    if apart:
        given = [f"args[{i}]{'.detach()' * (role in apart)}" for i, role in enumerate(signature.inputs)]
        source.line(1, f"args = [{', '.join(given)}]")
    apply = f"(Graph.apply if {source.bind('in_transform', in_transform)}() else quick_apply)"
    _emit_run(source, None, visible, f"{apply}({'written, ' if checked else ''}*args)", around, "_" * roots.is_anchored)
    _emit_epilogue(source, signature, checked)
    return source


def name_of(role: OutputRole) -> str:
    """The variable that holds an output of the graph."""
    match role:
        case UserOutput(index):
            return f"output_{index}"
        case Mutation(of=of):
            return f"new_{of.index}"
        case Base(index):
            return f"base_{index}"
        case Size(of) | Saved(of):
            return f"size_{of}" if isinstance(role, Size) else f"saved_{of}"
        case Gradient(of):
            return f"grad_{of.index}"
    raise AssertionError(role)


def written_positions(signature: Signature) -> tuple[int, ...]:
    """The positions of the inputs that a call writes or changes."""
    written = {role.of.index for role in signature.outputs if isinstance(role, Mutation)}
    return tuple(sorted(written | {e.of.index for e in signature.effects if isinstance(e, (Restride, Written))}))


def _emit_head(source: Source, program: Program, needs: AmbientNeeds) -> None:
    """The first lines of a call. What is written must overlap no other input: Dynamo does not guard that.

    A gradient that is kept or watched of an input that autograd sees written is that of its new value, to which the
    other results do not lead here. Inputs that the epilogue needs outlive the graph's own use of them.
    """
    signature = program.signature
    source.line(0, "def call(args):")
    if needs.is_guarded:
        _emit_overlap(source, program)
    for effect in signature.effects if needs.is_guarded else ():
        if isinstance(effect, Begins):
            source.line(1, f"if {_begins_elsewhere(effect)}: return elsewhere(args)")
    if numbers := number_inputs(program):
        limit = number_limit(program, numbers)
        test = " and ".join(f"-{limit} <= args[{position}] <= {limit}" for position in numbers)
        source.line(1, f"if not ({test}): return eager(args, {BEYOND!r})")
    for position in zero_inputs(program):
        test = f"{source.bind('is_negative', is_negative)}(args[{position}])"
        source.line(1, f"if {test}: return eager(args, {NEGATIVE_ZERO!r})")
    if needs.current is not None:
        test = f"{source.bind('device_now', current_device)}() != {needs.current}"
        source.line(1, f"if {test}: return eager(args, {CURRENT!r})")
    if needs.frozen:
        given = "".join(f"args[{position}], " for position in needs.frozen)
        test = f"True in map({source.bind('requires_grad', requires_grad)}, ({given}))"
        source.line(1, f"if {test}: return elsewhere(args)")
    written = {role.of for role in (*signature.outputs, *signature.effects) if isinstance(role, Mutation | Written)}
    # neither what an input is nor the mode of a call is among Dynamo's guards, and it compiles outside of that mode
    is_on = f" and not {source.bind('in_inference', torch.is_inference_mode_enabled)}()"
    positions = sorted(r.index for r in written if isinstance(r, UserInput) or r.index in needs.inference)
    tests = [f"args[{index}].is_inference()" for index in positions]
    if len(tests) > MOST_INLINE:
        given = ", ".join(f"args[{index}]" for index in positions)
        tests = [f"True in map({source.bind('is_inference', torch.Tensor.is_inference)}, ({given}))"]
    for test in tests:
        source.line(1, f"if {test}{is_on}: return eager(args, {INFERENCE!r})")
    for index in sorted({role.of.index for role in signature.differentiable if isinstance(role, Mutation)}):
        watched = f"args[{index}].retains_grad or args[{index}]._backward_hooks"
        source.line(1, f"if {watched}: return eager(args, {WATCHED!r})")
    shared = [role for role in signature.inputs if isinstance(role, Shared)]
    for role in shared:
        source.line(1, f"{_kept(role)} = {_shared_text(source, role)}")
    for index in sorted(_needed(signature)):
        source.line(1, f"keep_{index} = args[{index}]")
    if shared:
        source.line(1, f"args = [{', '.join(map(_given, signature.inputs))}]")
    for effect in signature.effects:
        if isinstance(effect, Warned):
            category = source.bind(effect.category.__name__, effect.category)
            place = f"{effect.filename!r}, {effect.line}"
            source.line(1, f"{source.bind('warn_from', warn_from)}({effect.message!r}, {category}, {place})")
    for index, view in enumerate(signature.results):
        if _is_ahead(view):
            _emit_view(source, index, view, {})
    if not any(map(_is_behind, signature.results)):
        _emit_bumps(source, signature)


def is_negative(number: torch.Tensor) -> bool:
    """Whether a number has the sign bit, as -0.0 does. Cost: 0.5 us."""
    return math.copysign(1.0, number.item()) < 0.0


def current_device() -> int:
    """The current GPU. Cost: 0.1 us."""
    return torch._C._cuda_getDevice()


def requires_grad(value: torch.Tensor) -> bool:
    return value.requires_grad


def _is_ahead(result: Result) -> TypeGuard[View]:
    """Whether a result is a view that is made before the graph runs, and so before the versions of inputs grow."""
    return isinstance(result, View) and result.is_early and not result.needs_sizes


def _is_behind(result: Result) -> TypeGuard[View]:
    """Whether a result is a view that is made after the graph, which gives its sizes, but before any input changes."""
    return isinstance(result, View) and result.is_early and result.needs_sizes


def _emit_bumps(source: Source, signature: Signature) -> None:
    """What makes versions of inputs grow where nothing is written. Before anything is saved, if anything is: what was
    saved first, capture has refused."""
    for effect in signature.effects:
        if isinstance(effect, Bump) and isinstance(effect.by, int):
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{effect.of.index}, {effect.by})")


def _emit_overlap(source: Source, program: Program) -> None:
    """The guard of written inputs against others; first, where there are few, whether they share a storage at all."""
    tensors = [index for index, node in enumerate(program.placeholders) if _is_tensor(node)]
    pairs = list(pairs_of(written_positions(program.signature), tensors))
    if not pairs:
        return
    test = "is_overlapping(args)"
    if len(pairs) <= PAIRS_INLINE:
        alias = source.bind("is_alias", is_alias)
        test = f"({' or '.join(f'{alias}(args[{p}], args[{q}])' for p, q in pairs)}) and {test}"
    source.line(1, f"if {test}: return elsewhere(args)")


def _begins_elsewhere(effect: Begins) -> str:
    """The test of an input that begins where the call was not recorded for."""
    remainder = "" if effect.divisor is None else f" % {effect.divisor}"
    return f"args[{effect.of.index}].storage_offset(){remainder} != {effect.offset}"


def _needed(signature: Signature) -> set[int]:
    """The positions of the inputs that the epilogue needs."""
    roles = {result.of for result in signature.results if isinstance(result, (Input, View))}
    roles |= {role.of for role in signature.outputs if isinstance(role, Mutation)}
    roles |= {effect.of for effect in signature.effects if isinstance(effect, (Restride, Detach, Bump))}
    roles |= {effect.of for effect in signature.effects if isinstance(effect, Written) and effect.by}
    return {role.index for role in roles if isinstance(role, (UserInput, Parameter, Buffer))}


def _kept(role: CallInput | Shared) -> str:
    """The variable that holds an input of the call, or the memory that inputs share."""
    return f"shared_{role.index}" if isinstance(role, Shared) else f"keep_{role.index}"


def _given(role: InputRole) -> str:
    """The expression for an input of the graph: memory that inputs share, or an input of the call."""
    match role:
        case Shared():
            return _kept(role)
        case UserInput(index) | Parameter(index=index) | Buffer(index=index):
            return f"args[{index}]"
    raise AssertionError(role)


def _shared_text(source: Source, role: Shared) -> str:
    members = ", ".join(f"args[{member.index}]" for member in role.of)
    if role.extent is None:
        return f"{source.bind('base_of', base_of)}({members})"
    return f"{source.bind('laid_over', laid_over)}({role.extent}, {members})"


def base_of(*views: torch.Tensor) -> torch.Tensor:
    """The tensor that autograd knows as the base of all the views, or that one of them is."""
    first = views[0]
    return first if first._base is None else first._base


def _scatters_by_strides(program: Program) -> bool:
    """Whether a graph makes scatters that refuse what requires grad, whatever the mode, unless it is contiguous."""
    target = torch.ops.aten.as_strided_scatter.default
    return bool(program.module.graph.find_nodes(op="call_function", target=target))


def without_history(args: Sequence[object]) -> list[object]:
    """The inputs of a graph, of which autograd knows nothing."""
    return [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]


def laid_over(extent: int, *views: torch.Tensor) -> torch.Tensor:
    """A flat tensor over the first `extent` elements of the views' storage; autograd knows nothing of it."""
    with torch.no_grad():
        return views[0].detach().as_strided((extent,), (1,), 0)


def _emit_run(
    source: Source,
    program: Program | None,
    outputs: tuple[OutputRole, ...],
    run: str,
    needs: AmbientNeeds,
    beside: str = "",
) -> None:
    """`beside`: the variable of what is returned after the outputs."""
    depth = 1
    switches = {
        "autocast_off": (needs.autocast_off, torch._C._DisableAutocast),
        "no_grad": (needs.grad_off, GradOff),
        "enable_grad": (needs.grad_on, torch.enable_grad),
        "inference_mode": (needs.inference_on, torch.inference_mode),
        "hooks_off": (needs.hooks_off, hooks_off),
    }
    for name, (is_wanted, switch) in switches.items():
        if is_wanted:
            source.line(depth, f"with {source.bind(name, switch)}():")
            depth += 1
    names = ", ".join([*(name_of(role) for role in outputs), *filter(None, [beside])])
    source.line(depth, f"({names},) = {run}" if names else run)
    for role in _views_among(program) if program is not None else ():
        name = name_of(role)
        source.line(depth, f"{name} = {source.bind('as_no_view', as_no_view)}({name})")
    for effect in program.signature.effects if program is not None else ():
        if isinstance(effect, Layout):
            name = name_of(effect.of)
            source.line(depth, f"{name} = {source.bind('relaid', relaid)}({name}, {effect.strides}, {effect.offset})")


def hooks_off() -> AbstractContextManager[Any]:
    """Autograd saves what it is given as it is, whatever hooks are around the call."""
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


hooks_now: Callable[[bool], object] = torch._C._autograd._top_saved_tensors_default_hooks
"""The hooks on saved tensors that are around the call, or None."""


def _as_it_is(value: torch.Tensor) -> torch.Tensor:
    return value


def _views_among(program: Program) -> list[OutputRole]:
    """The results that the graph computes as views and that are none to the caller: their strides were set in place."""
    pairs = zip(program.signature.outputs, program.returned, strict=True)
    results = [(role, node) for role, node in pairs if isinstance(role, (UserOutput, Base))]
    return [role for role, node in results if isinstance(node, torch.fx.Node) and is_view(node)]


def relaid(value: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The same values, so laid out; copied only where an element has to move."""
    moves = [now != wanted for size, now, wanted in zip(value.shape, value.stride(), strides, strict=True) if size > 1]
    if value.storage_offset() == offset and (value.numel() == 0 or not any(moves)):
        return reinterpret(value, value.size(), strides, 0)
    extent = offset + sum((size - 1) * step for size, step in zip(value.shape, strides, strict=True)) + 1
    memory = torch.empty(extent, dtype=value.dtype, device=value.device)
    return reinterpret(memory, value.size(), strides, offset).copy_(value)


def as_no_view(value: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory, in the same layout, that autograd takes for a view of nothing."""
    return reinterpret(value, value.size(), value.stride(), 0)


def _emit_epilogue(source: Source, signature: Signature, checked: Sequence[CallInput] = ()) -> None:
    results = dict(enumerate(signature.results))
    names: dict[int, str] = {}
    for index, result in results.items():
        if _is_behind(result):
            names[index] = _emit_view(source, index, result, names)
        elif _is_ahead(result):
            names[index] = _result_name(index)
    if any(map(_is_behind, signature.results)):
        _emit_bumps(source, signature)
    for effect in signature.effects:
        _emit_effect(source, effect)
    _emit_writes(source, signature)
    for of in checked:
        source.line(1, f"written.append((keep_{of.index}.detach(), keep_{of.index}._version))")
    for index in sorted(results.keys() - names.keys(), key=lambda index: _depth(signature, index)):
        names[index] = _emit_result(source, index, results[index], names)
    for effect in signature.effects:
        if isinstance(effect, GradMode):
            source.line(1, f"{source.bind('set_grad_enabled', torch._C._set_grad_enabled)}({effect.enabled})")
    source.line(1, f"return ({''.join(names[index] + ', ' for index in results)})")


def _depth(signature: Signature, index: int) -> int:
    """Through how many other results a result is made, which come before it."""
    result = signature.results[index]
    if isinstance(result, Same):
        return 1 + _depth(signature, result.index)
    return 1 + _depth(signature, result.of.index) if isinstance(result, View) and isinstance(result.of, Same) else 0


def _emit_effect(source: Source, effect: Effect) -> None:
    """A change of an input beside its values. The grad mode that a program leaves comes last, with the results."""
    match effect:
        case Restride(of, how):
            off = source.bind("leaf_grad_off", leaf_grad_off)
            for step in how:
                source.line(1, f"with {off}(keep_{of.index}): {_step_text(source, f'keep_{of.index}', step)}")
        case Detach(of):
            source.line(1, f"keep_{of.index}.detach_()")
        case Bump(of, Size() as size, less):
            grown = f"{name_of(size)} - {less}" if less else name_of(size)
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{of.index}, {grown})")
        case Written(of, by) if by:
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{of.index}, {by})")


def leaf_grad_off(value: torch.Tensor) -> AbstractContextManager[Any]:
    """Gradients off for a leaf that requires one: nobody changes its shape in place otherwise."""
    return GradOff() if value.requires_grad and value.is_leaf else nullcontext()


def _emit_writes(source: Source, signature: Signature) -> None:
    """The values of inputs after the call, several at once where autograd has no part in it."""
    writes = [role for role in signature.outputs if isinstance(role, Mutation)]
    together: set[Mutation] = set()
    for kind, guard in (("hidden", ""), ("seen", ""), ("no_grad", source.unrecorded())):
        alike = [role for role in writes if role.kind == kind and _is_unrecorded(role, signature)]
        if len(alike) < 2:
            continue
        times = (0 if kind == "hidden" else role.writes for role in alike)
        texts = ((f"keep_{r.of.index}", name_of(r), str(count)) for r, count in zip(alike, times, strict=True))
        arguments = ", ".join(f"({', '.join(parts)})" for parts in zip(*texts, strict=True))
        source.line(1, f"{guard}{source.bind('write_back', write_back)}({arguments})")
        together.update(alike)
    for role in writes:
        if role not in together:
            _emit_write(source, role)


def _is_unrecorded(role: Mutation, signature: Signature) -> bool:
    """Whether autograd surely has no part in a write."""
    if role.kind == "hidden" or not signature.differentiable:
        return True
    return isinstance(role.of, Buffer) and role not in signature.differentiable


def write_back(kept: Sequence[torch.Tensor], new: Sequence[torch.Tensor], times: Sequence[int]) -> None:
    """Copies the values of inputs after the call into them; what a kernel wrote over its input is there already. The
    version of each grows by as many `times` as eager writes it."""
    if all(map(operator.is_, kept, new)):
        increment_version(_growing(tuple(times))(kept))
        return
    grown: list[torch.Tensor] = []
    stale, fresh = list[torch.Tensor](), list[torch.Tensor]()
    for old, value, count in zip(kept, new, times, strict=True):
        if old is not value:
            stale.append(old if count else old.data)
            fresh.append(value)
            count -= 1
        grown += [old] * count
    if stale:
        copy_each(stale, fresh)
    increment_version(grown)


@functools.lru_cache(maxsize=1024)
def _growing(times: tuple[int, ...]) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
    """What takes each tensor as often as its version grows."""
    positions = [position for position, count in enumerate(times) for _ in range(count)]
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda tensors: [tensors[position] for position in positions]


def _emit_write(source: Source, role: Mutation) -> None:
    kept, new = f"keep_{role.of.index}", name_of(role)
    if role.kind == "hidden":
        source.line(1, f"{kept}.data.copy_({new})")
        return
    if role.kind == "no_grad":
        source.line(1, f"{source.unrecorded()}{kept}.copy_({new})")
    else:
        source.line(1, f"{kept}.copy_({new})")
    if role.writes != 1:
        source.line(1, f"{source.bind('bump_version', bump_version)}({kept}, {role.writes - 1})")


def bump_version(tensor: torch.Tensor, by: int) -> None:
    """Makes a tensor's version grow as eager's writes would have. Inference tensors have none."""
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version + by,))


def _emit_result(source: Source, index: int, result: Result, names: Mapping[int, str]) -> str:
    """The text of one result; a view is made on the lines before."""
    match result:
        case Constant(value):
            return repr(value) if isinstance(value, LITERALS) else source.bind("constant", value)
        case Input(of):
            return f"keep_{of.index}"
        case Same(first):
            return names[first]
        case View():
            return _emit_view(source, index, result, names)
    return name_of(result)


def _emit_view(source: Source, index: int, view: View, names: Mapping[int, str]) -> str:
    match view.of:
        case Same(first):
            text = names[first]
        case UserOutput() | Base():
            text = name_of(view.of)
        case _:
            text = _kept(view.of)
    name = _result_name(index)
    guard = "" if view.is_in_grad_mode else source.unrecorded()
    for place, step in enumerate(view.how):
        text = _step_text(source, text, step)
        if step.item is not None:
            item = _Piece(index, place, step.item, is_last=place + 1 == len(view.how))
            text = _piece(source, guard, text, item, view.is_early)
    source.line(1, f"{guard}{name} = {text}")
    return name


@dataclass(frozen=True, slots=True)
class _Piece:
    """The piece `item` of what the step `place` of a result's view gives; `is_last` where the result is this piece."""

    result: int
    place: int
    item: int
    is_last: bool


def _piece(source: Source, guard: str, call: str, piece: _Piece, is_early: bool) -> str:
    """The text of one of the pieces that a call gives.

    Results that are pieces of one tensor come of one call, as in eager. Autograd then puts their gradients side by
    side. Those of two calls would be added, each among zeros.
    """
    key = guard, call, is_early
    name, taken = source.pieces.get(key, ("", set[int]()))
    if not name or (piece.is_last and piece.item in taken):  # two results are never one object
        name, taken = source.pieces[key] = f"pieces_{piece.result}_{piece.place}", set()
        source.line(1, f"{guard}{name} = {call}")
    if piece.is_last:
        taken.add(piece.item)
    return f"{name}[{piece.item}]"


def _result_name(index: int) -> str:
    return f"result_{index}"


def _step_text(source: Source, value: str, step: ViewStep) -> str:
    """One step of a view's chain, all pieces that it gives. A method of the tensor costs a third of the operator."""
    given: Sequence[object] = step.arguments
    if step.target in SPREAD and len(given) == 1 and isinstance(given[0], (list, tuple)) and given[0]:
        given = given[0]
    arguments = ", ".join(_argument(source, argument) for argument in given)
    if step.target == "data":
        return f"{value}.data"
    method = METHODS.get(step.target)
    if method is not None:
        return f"{value}.{method}({arguments})"
    operator = source.bind(str(step.target).removesuffix(".default").replace(".", "_"), step.target)
    return f"{operator}({value}{', ' if arguments else ''}{arguments})"


def _argument(source: Source, value: object) -> str:
    if isinstance(value, Size):
        return name_of(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_argument(source, item) for item in value) + "]"
    return repr(value) if isinstance(value, LITERALS) else source.bind("constant", value)


def _emit_forward_half(source: Source, forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots) -> None:
    signature = forward.signature
    visible = [role for role in signature.outputs if not isinstance(role, Saved)]
    fixed = [name_of(r) for r in visible if r not in signature.differentiable and not isinstance(r, Size)]
    source.line(1, "@staticmethod")
    checked = _saved_as_written(forward)
    source.line(1, f"def forward(ctx, {'written, ' if checked else ''}*args):")
    if checked:
        source.line(2, "ctx.written = written")
    below = AmbientNeeds(grad_off=False, autocast_off=needs.autocast_off)  # autograd turns gradients off in here
    is_bare = _scatters_by_strides(forward)
    given = f"{source.bind('without_history', without_history)}(args)" if is_bare else "list(args)"
    _inner_run(source, forward, f"forward_graph({given})", below)
    tensors, sizes = saved_names(forward)
    written = _saved_and_written(forward)
    copied = source.bind("copy_as_it_lies", copy_as_it_lies) if written else ""
    unchecked = _saved_unchecked(forward)
    if is_bare:  # what the graph was given leads nowhere
        for name, place in _saved_inputs(forward).items():
            source.line(2, f"{name} = args[{place}]")
    kept = [f"{copied}({name})" if name in written else name + ".data" * (name in unchecked) for name in tensors]
    anchor = ["anchor"] * roots.is_anchored
    if not tensors and not anchor and _is_freed(forward):
        kept = [source.bind("freed", torch.empty(0))]
    if anchor:
        are_leaves = " and ".join(f"args[{index}].is_leaf" for index in _behind(forward, roots))
        source.line(2, f"anchor = None if {are_leaves} else {source.bind('new_anchor', new_anchor)}()")
    source.line(2, f"ctx.save_for_backward({', '.join([*kept, *anchor])})")
    if tensors and not needs.hooks_off:
        source.line(2, f"ctx.is_hooked = {source.bind('hooks_now', hooks_now)}(True) is not None")
    if sizes:
        source.line(2, f"ctx.sizes = ({''.join(size + ', ' for size in sizes)})")
    if roots.sizes:
        given = "".join(f"args[{i}]" + (f".size({dim})" if dim is not None else "") + ", " for i, dim in roots.sizes)
        source.line(2, f"ctx.at = ({given})")
    source.line(2, "ctx.set_materialize_grads(False)")
    shapes = [name_of(role) + ".shape, " for role in _tangents(backward)]
    if len(shapes) > 1:
        source.line(2, f"ctx.shapes = ({''.join(shapes)})")
        if noted := _saved_noted(forward):
            source.line(2, f"ctx.versions = ({''.join(tensors[index] + '._version, ' for index in noted)})")
    if fixed:
        source.line(2, f"ctx.mark_non_differentiable({', '.join(fixed)})")
    source.line(2, f"return ({''.join(name_of(role) + ', ' for role in visible)}{''.join(anchor)})")


def _is_freed(forward: Program) -> bool:
    """Whether a second backward is an error, though nothing is saved for the first."""
    return any(isinstance(effect, Freed) for effect in forward.signature.effects)


def _inner_run(source: Source, forward: Program, run: str, needs: AmbientNeeds) -> None:
    inner = Source(namespace=source.namespace)
    _emit_run(inner, forward, forward.signature.outputs, run, needs)
    source.lines.extend("    " + line for line in inner.lines)


def saved_names(forward: Program) -> tuple[list[str], list[str]]:
    """Variables of the saved tensors and of the saved integers, each in order."""
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    saved = [(name_of(role), node) for role, node in pairs if isinstance(role, Saved)]
    tensors = [name for name, node in saved if _is_tensor(node)]
    return tensors, [name for name, node in saved if not _is_tensor(node)]


def _saved_inputs(forward: Program) -> dict[str, int]:
    """Variables of the saved tensors that are inputs, each with its position among these."""
    places = {node: place for place, node in enumerate(forward.placeholders)}
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    saved = [(name_of(role), node) for role, node in pairs if isinstance(role, Saved) and _is_tensor(node)]
    return {name: places[node] for name, node in saved if node in places}


def _saved_and_written(forward: Program) -> set[str]:
    """Saved inputs that the epilogue will write: backward needs the value from before, which eager copies too.

    Where eager would have saved the input itself, recording the gradients has failed as eager's backward does.
    """
    mutated = {role.of for role in forward.signature.outputs if isinstance(role, Mutation)}
    inputs = zip(forward.signature.inputs, forward.placeholders, strict=True)
    written = {node for role, node in inputs if role in mutated or (isinstance(role, Shared) and mutated & {*role.of})}
    outputs = zip(forward.signature.outputs, forward.returned, strict=True)
    return {name_of(role) for role, node in outputs if isinstance(role, Saved) and _root(node) in written}


def _saved_unchecked(forward: Program) -> set[str]:
    """Saved tensors that eager keeps as attributes of a context: writing them before backward raises nothing."""
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    return {name_of(role) for role, node in pairs if isinstance(role, Saved) and _is_tensor(node)
            and UNCHECKED in node.meta}  # fmt: skip


def _saved_as_written(forward: Program) -> list[CallInput]:
    """The inputs whose value after their writes backward needs: it is the caller's tensor that eager would have saved.

    What the graph saves is a value of its own, so a later write to that tensor has to be noticed by its version.
    """
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    saved = {_root(node) for role, node in pairs if isinstance(role, Saved)}
    return [role.of for role, node in pairs if isinstance(role, Mutation) and _root(node) in saved]


def _root(node: torch.fx.Node | int | None) -> torch.fx.Node | int | None:
    """The call behind a chain of views."""
    while isinstance(node, torch.fx.Node) and is_view(node):
        node = node_argument(node, 0)
    return node


def check_versions(written: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raises: RuntimeError, as eager's backward does, where a tensor has been written since its value was saved."""
    for tensor, version in written:
        if tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} "
                "instead"
            )


def _is_tensor(node: object) -> TypeGuard[torch.fx.Node]:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def roots_of(forward: Program, leaves: Sequence[InputRole], sizes: Iterable[tuple[int, int | None]] = ()) -> Roots:
    """Where gradients of gradients find the inputs that the call has gradients of, and its symbolic sizes: each is an
    input, by its position, or one of its dimensions."""
    inputs, first = forward.signature.inputs, int(bool(_saved_as_written(forward)))
    tensors, _ = saved_names(forward)
    copied = _saved_and_written(forward) | _saved_unchecked(forward)
    nodes = dict(zip(inputs, forward.placeholders, strict=True))
    among = {role: index for index, role in enumerate(role for role in inputs if _is_tensor(nodes[role]))}
    sources: list[tuple[str, int]] = []
    is_anchored = False
    for leaf in leaves:
        saved = name_of(Saved(nodes[leaf].name))
        if saved in tensors and saved not in copied:
            sources.append(("saved", tensors.index(saved)))
        else:
            sources.append(("behind", among[leaf]))
            is_anchored = is_anchored or not isinstance(leaf, Parameter)
    places = tuple(first + inputs.index(leaf) for leaf in leaves)
    return Roots(places, first + len(inputs), tuple(sources), is_anchored, tuple(sizes))


def _behind(forward: Program, roots: Roots) -> Iterator[int]:
    """The inputs that gradients of gradients find behind the node, if they are leaves; parameters are."""
    first = int(bool(_saved_as_written(forward)))
    for place, (kind, _) in zip(roots.places, roots.sources, strict=True):
        if kind == "behind" and not isinstance(forward.signature.inputs[place - first], Parameter):
            yield place - first


def _is_elsewhere(backward: Program) -> bool:
    """Whether a tangent is on a device whose backward has a thread of its own."""
    return any(
        isinstance(role, Tangent) and node.meta["val"].device.type != "cpu"
        for node, role in zip(backward.placeholders, backward.signature.inputs, strict=True)
    )


def _emit_backward_half(source: Source, forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots) -> None:
    visible = [role for role in forward.signature.outputs if not isinstance(role, Saved)]
    source.line(1, "@staticmethod")
    arguments = [*(f"tangent_{name_of(role)}" for role in visible), *["ticket"] * roots.is_anchored]
    source.line(1, f"def backward(ctx, {', '.join(arguments)}):")
    checked = _saved_as_written(forward)
    names = [f"tangent_{name_of(role)}" for role in _tangents(backward)]
    plain = ", ".join(["ctx", *arguments[: len(visible)], *["None"] * roots.is_anchored])
    tangents = f"ctx, ({''.join(name + ', ' for name in names)})"
    given = ", ".join([tangents, *arguments[len(visible) :]])
    again = f"higher_order(lambda: Graph.backward({plain}), {given})"
    asked = f"{'ticket is not None or ' * roots.is_anchored}{source.bind('is_grad_enabled', is_grad_enabled)}()"
    casting, plainly = source.bind("in_autocast", in_autocast), source.bind("without_autocast", without_autocast)
    source.line(2, f"if {casting}(): return {plainly}(Graph.backward, {', '.join(['ctx', *arguments])})")
    source.line(2, f"if {asked}: return {again}")
    if names:
        batched = [f"{source.bind('in_batch', in_batch)}()"]
        batched += [f"{source.bind('is_batch', is_batch)}({name})" for name in names if _is_elsewhere(backward)]
        source.line(2, f"if {' or '.join(batched)}: return recorded_backward({tangents})")
        if _is_freed(forward) and not saved_names(forward)[0]:
            source.line(2, "ctx.saved_tensors  # raises, if they were freed")
        nothing = f"return ({'None, ' * (len(forward.signature.inputs) + bool(checked))})"
        source.line(2, f"if {' and '.join(f'{name} is None' for name in names)}: {nothing}")
        if len(names) > 1:
            some = " or ".join(f"{name} is None" for name in names)
            source.line(2, f"if {some}: return partial_backward({tangents})")
    tensors, sizes = saved_names(forward)
    if checked:
        source.line(2, f"{source.bind('check_versions', check_versions)}(ctx.written)")
    if tensors:
        source.line(2, f"({', '.join(tensors)}, {'_' * roots.is_anchored}) = ctx.saved_tensors")
    if sizes:
        source.line(2, f"({', '.join(sizes)},) = ctx.sizes")
    handed_on = _handed_on(backward)
    for role, node in _tangents(backward).items():
        if node in handed_on:
            source.line(2, f"{handed_on[node]} = tangent_{name_of(role)}")
    is_hooked = bool(tensors) and not needs.hooks_off
    _emit_fitting(source, forward, backward, is_hooked, f"return recorded_backward({tangents})")
    arguments = [_argument_name(role) for role in backward.signature.inputs]
    source.line(2, f"given = [{', '.join(arguments)}]")
    if tensors:  # each is freed as soon as the graph has used it, unless autograd keeps it for another backward
        source.line(2, f"del {', '.join(dict.fromkeys(arguments))}")
        source.line(2, "ctx.maybe_clear_saved_tensors()")
    source.line(2, "values = backward_graph(given)")
    gradients = _gradients(backward, handed_on)
    returned = ["None"] * bool(checked) + [gradients.get(role, "None") for role in forward.signature.inputs]
    source.line(2, f"return ({', '.join(returned)},)")


def _gradients(backward: Program, handed_on: Mapping[torch.fx.Node, str]) -> dict[InputRole, str]:
    """What holds the gradient of each input: a value of backward, or what it was handed and returns."""
    pairs = zip(backward.signature.outputs, backward.returned, strict=True)
    return {
        role.of: handed_on[node] if isinstance(node, torch.fx.Node) and node in handed_on else f"values[{index}]"
        for index, (role, node) in enumerate(pairs)
        if isinstance(role, Gradient)
    }


def _argument_name(role: InputRole) -> str:
    """The variable that holds an input of backward."""
    match role:
        case Saved():
            return name_of(role)
        case Tangent(of):
            return f"tangent_{name_of(of)}"
    raise AssertionError(role)


def _emit_fitting(source: Source, forward: Program, backward: Program, is_hooked: bool, otherwise: str) -> None:
    """Lines that bring what others may have changed into the form that the graph takes, or leave to `otherwise`.

    Others give the tangents, and can reach the inputs and the results that were saved; hooks give whatever was saved.
    """
    pairs = zip(backward.signature.inputs, backward.placeholders, strict=True)
    taken = {role: node for role, node in pairs if _is_strided(node) and not _is_only_handed_on(node)}
    for role, node in taken.items():
        if isinstance(role, Tangent) and has_symbols(node.meta["val"]):
            name = _argument_name(role)
            source.line(2, f"{name} = {source.bind('laid_out', laid_out_as(node.meta['val']))}({name})")
    reached = _saved_within_reach(forward)
    changing = [role for role in taken if isinstance(role, Tangent) or role in reached]
    if not taken or not (changing or is_hooked):
        return
    names, few = (", ".join(map(_argument_name, roles)) for roles in (taken, changing))
    inputs = source.bind("inputs", _inputs_of([taken[role] for role in changing]))
    whole = inputs if len(changing) == len(taken) else source.bind("inputs", _inputs_of(taken.values()))
    test = f"not ({inputs}.check({few}) or {inputs}.look({few}))"
    source.line(2, f"if {'ctx.is_hooked or ' * is_hooked}{test}:")
    source.line(3, f"fitted = {whole}.fitted({names})")
    source.line(3, f"if fitted is None: {otherwise}")
    source.line(3, f"({names},) = fitted")
    source.line(3, "del fitted")


def _inputs_of(nodes: Iterable[torch.fx.Node]) -> BackwardInputs:
    values = [node.meta["val"] for node in nodes]
    return BackwardInputs(tuple(Expected.of(value, laid_out_as(value)) for value in values))


def _is_strided(node: torch.fx.Node) -> bool:
    return _is_tensor(node) and node.meta["val"].layout is torch.strided


def _saved_within_reach(forward: Program) -> set[InputRole]:
    """What forward saves of its inputs and of the results that the call returns."""
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    known = {*forward.placeholders, *(node for role, node in pairs if not isinstance(role, Saved))}
    return {role for role, node in pairs if isinstance(role, Saved) and node in known}


def _handed_on(backward: Program) -> dict[torch.fx.Node, str]:
    """The tangents that are gradients themselves, each with a variable for the very tensor, however it lies: eager's
    gradient is that one."""
    returned = set(backward.returned)
    return {node: f"own_tangent_{name_of(role)}" for role, node in _tangents(backward).items() if node in returned}


def _is_only_handed_on(tangent: torch.fx.Node) -> bool:
    """Whether nothing computes with a tangent."""
    return bool(tangent.users) and all(user.op == "output" for user in tangent.users)


def partial_backward(
    forward: Program,
    backward: Program,
    build: Callable[[frozenset[Tangent]], tuple[Program, GraphCall]],
    recorded: Callable[..., Sequence[object]] | None = None,
) -> PartialBackward:
    """What the backward of an emitted call runs where some of its tangents are None.

    `build(missing)` is the backward without those tangents, as a program and as a call; `recorded` the one that runs
    operator by operator, for what that call cannot take.
    """
    tangents = _tangents(backward)
    tensors, sizes = saved_names(forward)
    roots = {name_of(r): _root(n) for r, n in zip(forward.signature.outputs, forward.returned, strict=True)}
    checked = _saved_as_written(forward)
    gradients: dict[object, tuple[int, frozenset[int]]] = {}
    for index, role in enumerate(backward.signature.outputs):
        assert isinstance(role, Gradient)
        gradients[role.of] = index, frozenset(i for i, tangent in enumerate(tangents) if tangent in role.through)

    def make(given: frozenset[int]) -> Part:
        missing = frozenset(Tangent(role) for index, role in enumerate(tangents) if index not in given)
        program, graph = build(missing)
        arguments = [_place(role, tensors, sizes, list(tangents)) for role in program.signature.inputs]
        read = {roots[tensors[index]] for kind, index in arguments if kind == "saved"}
        return Part(
            graph,
            tuple(arguments),
            tuple(index for index, of in enumerate(checked) if _written_root(forward, of) in read),
            (*[None] * bool(checked), *(gradients.get(role) for role in forward.signature.inputs)),
            _inputs_of(filter(_is_tensor, program.placeholders)),
        )

    examples = [node.meta["val"] for node in tangents.values()]
    layouts, zeros = [laid_out_as(value) for value in examples], [zeros_like(value) for value in examples]
    noted = {index: position for position, index in enumerate(_saved_noted(forward))}
    return PartialBackward(make, layouts, zeros, check_versions, noted, recorded=recorded)


def _saved_noted(forward: Program) -> list[int]:
    """The positions of those saved tensors that the autograd function returns as well.

    Where torch cannot unpack one of them by itself, and so looks at no version of it, these are all that are no
    copies.
    """
    pairs = list(zip(forward.signature.outputs, forward.returned, strict=True))
    copied = _saved_and_written(forward)
    visible = {node for role, node in pairs if not isinstance(role, Saved)}
    saved = [(name_of(role), node) for role, node in pairs if isinstance(role, Saved) and _is_tensor(node)]
    return [
        index
        for index, (name, node) in enumerate(saved)
        if UNCHECKED not in node.meta and (node in visible or (BEFORE_2_13 and name not in copied))
    ]


def _place(role: object, tensors: list[str], sizes: list[str], tangents: list[OutputRole]) -> tuple[str, int]:
    """An input of backward by its kind and its position among those of that kind."""
    if isinstance(role, Tangent):
        return "tangent", tangents.index(role.of)
    assert isinstance(role, Saved)
    name = name_of(role)
    return ("saved", tensors.index(name)) if name in tensors else ("size", sizes.index(name))


def _written_root(forward: Program, of: CallInput) -> object:
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    return next(_root(node) for role, node in pairs if isinstance(role, Mutation) and role.of == of)


def _tangents(backward: Program) -> dict[OutputRole, torch.fx.Node]:
    """The outputs whose gradient backward takes, each with its placeholder."""
    pairs = zip(backward.signature.inputs, backward.placeholders, strict=True)
    return {role.of: node for role, node in pairs if isinstance(role, Tangent)}


def zeros_like(expected: torch.Tensor) -> Callable[[torch.Size], torch.Tensor]:
    """Zeros of a shape, in the dtype and on the device of a tangent."""
    return _zeros_of(expected.dtype, expected.device)


def _zeros_of(dtype: torch.dtype, device: torch.device) -> Callable[[torch.Size], torch.Tensor]:
    def zeros(shape: torch.Size) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return _made_by(zeros, _zeros_of, dtype, device)


def _made_by(function: Made, maker: Callable[..., object], *arguments: object) -> Made:
    """The function with a note of how to make it again, for whoever keeps a call beyond its process."""
    function.made_by = maker, arguments  # type: ignore[attr-defined]
    return function


def copy_as_it_lies(value: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `value`, also where it leaves elements of its memory out: backward relies on them."""
    copy = value.clone()
    return copy if copy.stride() == value.stride() else _with_gaps(value)


def _with_gaps(value: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    if value.is_conj():
        copy = copy.conj()
    if value.is_neg():
        copy = torch._neg_view(copy)
    return copy.copy_(value)


def laid_out_as(expected: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that gives a tangent the strides that the backward graph was recorded with, and its numbers plainly:
    kernels know of no lazy conjugates and negatives."""
    strides: tuple[int | torch.SymInt, ...] = expected.stride()
    order = list(range(expected.dim()))  # in rows, where a stride is only known when the program runs
    if all(map(is_known, strides)):
        order.sort(key=lambda dim: (-hint(strides[dim]), dim))
    are_numbers = not any(isinstance(stride, torch.SymInt) for stride in strides)
    return _laid_out_by(tuple(order), tuple(strides) if are_numbers else None, expected.dtype.is_complex)


def _laid_out_by(
    order: tuple[int, ...], stride: tuple[int | torch.SymInt, ...] | None, is_complex: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    """`order` are the dimensions, the slowest in memory first; `stride` is None where it depends on symbols."""
    inverse = [order.index(dim) for dim in range(len(order))]
    ordered = order == tuple(range(len(order)))

    def laid_out(tangent: torch.Tensor) -> torch.Tensor:
        if tangent.layout is not torch.strided:
            return tangent
        if tangent.is_neg() or (is_complex and tangent.is_conj()):
            tangent = tangent.resolve_conj().resolve_neg()
        if stride is not None and tangent.stride() == stride:
            return tangent
        if ordered:
            return tangent.contiguous()
        return tangent.permute(order).contiguous().permute(inverse)

    return _made_by(laid_out, _laid_out_by, order, stride, is_complex)
