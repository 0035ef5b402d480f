"""Before the graph: what a call asks of its inputs and of the modes around it, and the names that it gives them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.compiler.codegen.call.replay import is_made_again
from assay.compiler.codegen.call.source import Source, is_tensor, name_of_kept
from assay.compiler.codegen.call.versions import emit_bumps
from assay.compiler.codegen.call.views import MOST_INLINE, emit_view, is_ahead, is_behind
from assay.compiler.ir.graph.number_range import number_inputs, number_limit, zero_inputs
from assay.compiler.ir.graph.roles import (
    Begins,
    Buffer,
    Bump,
    CallInput,
    Detach,
    Input,
    InputRole,
    Mutation,
    Parameter,
    Program,
    Replaced,
    Resized,
    Restride,
    Shared,
    Signature,
    UserInput,
    View,
    Warned,
    Written,
)
from assay.compiler.ir.tensors.layout.overlap import is_alias, pairs_of
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.runtime.call import (
    base_of,
    current_device,
    fill_out,
    is_negative,
    laid_over,
    requires_grad,
    warn_from,
)
from assay.compiler.runtime.expected_inputs import ExpectedInputs
from assay.compiler.runtime.expected_wrappers import ExpectedWrapper
from assay.compiler.runtime.written_views import is_watched

WATCHED = "the gradient of an input that it writes is kept or has a hook"
INFERENCE = "it writes an inference tensor outside of inference mode"
CURRENT = "another GPU is the current one than when it was compiled"
ANOMALY = "anomaly mode is on, and names the line of each operation"
PAIRS_INLINE = 4
"""Up to how many pairs of inputs a call asks itself whether they share a storage."""


@dataclass(frozen=True, slots=True)
class AmbientNeeds:
    """The modes that must be switched around the graph.

    They are gradients that no one asked for, or that the program itself switched on, and casts that are in the graph
    already.

    `hooks_off`: hooks on saved tensors are parts of the graphs.

    `inference`: the inputs, by position, that are inference tensors. `is_grad_off`: gradients are off wherever the call
    is made.
    `is_guarded`: the call looks whether its written inputs overlap, and is made elsewhere if they do. `frozen`: as is a
    call where an input at these positions, which required no grad, does, or where one at the positions `unguarded` has
    another dtype, device, size or strides. `current`: the GPU that has to be the current one, as what is made there was
    recorded to be on it.
    """

    grad_off: bool
    autocast_off: bool
    grad_on: bool = False
    is_grad_off: bool = False
    is_guarded: bool = True
    inference: tuple[int, ...] = ()
    hooks_off: bool = False
    frozen: tuple[int, ...] = ()
    current: int | None = None
    unguarded: tuple[int, ...] = ()


def written_positions(signature: Signature) -> tuple[int, ...]:
    """The positions of the inputs that a call writes or changes."""
    written = {of.index for role in signature.outputs if isinstance(role, Mutation) for of in _inputs_of(role.of)}
    return tuple(sorted(written | {e.of.index for e in signature.effects if isinstance(e, (Restride, Written))}))


def emit_head(source: Source, program: Program, needs: AmbientNeeds) -> None:
    """The first lines of a call. Inputs that the epilogue needs outlive the graph's own use of them."""
    signature = program.signature
    source.line(0, "def call(args):")
    _emit_tests(source, program, needs)
    if is_made_again(program):
        source.line(1, "given = [*args]")
    shared = [role for role in signature.inputs if isinstance(role, Shared)]
    for role in shared:
        source.line(1, f"{name_of_kept(role)} = {_shared_text(source, role)}")
    for index in sorted(_needed(signature)):
        source.line(1, f"keep_{index} = args[{index}]")
    if shared:
        source.line(1, f"args = [{', '.join(map(_given, signature.inputs))}]")
    for effect in signature.effects:
        if isinstance(effect, Warned):
            category = source.bind(effect.category.__name__, effect.category)
            place = f"{effect.filename!r}, {effect.line}"
            source.line(1, f"{source.bind('warn_from', warn_from)}({effect.message!r}, {category}, {place})")
    for effect in signature.effects:
        if isinstance(effect, Resized) and effect.most:
            source.line(1, f"{source.bind('fill_out', fill_out)}({name_of_kept(effect.of)}, {effect.most})")
    for index, view in enumerate(signature.results):
        if is_ahead(view):
            emit_view(source, index, view, {})
    if not any(map(is_behind, signature.results)):
        emit_bumps(source, signature)


def _emit_tests(source: Source, program: Program, needs: AmbientNeeds) -> None:
    """Lines that leave the call to others: it was compiled for other inputs, or for another mode.

    What is written must overlap no other input: Dynamo does not guard that. A gradient that is kept or watched of an
    input that autograd sees written is that of its new value, to which the other results do not lead here. Kernels
    compute integers in 64 bits, and a guard takes -0.0 for 0.0: a call with other numbers is compiled for itself.
    """
    signature = program.signature
    if needs.is_guarded:
        _emit_overlap(source, program)
    for effect in signature.effects if needs.is_guarded else ():
        if isinstance(effect, Begins):
            source.line(1, f"if {_begins_elsewhere(effect)}: return elsewhere(args)")
    if numbers := number_inputs(program):
        limit = number_limit(program, numbers)
        test = " and ".join(f"-{limit} <= args[{position}] <= {limit}" for position in numbers)
        source.line(1, f"if not ({test}): return elsewhere(args)")
    for position in zero_inputs(program):
        test = f"{source.bind('is_negative', is_negative)}(args[{position}])"
        source.line(1, f"if {test}: return elsewhere(args)")
    if needs.current is not None:
        test = f"{source.bind('device_now', current_device)}() != {needs.current}"
        source.line(1, f"if {test}: return eager(args, {CURRENT!r})")
    if needs.unguarded:
        _emit_facts(source, program, needs.unguarded)
    if needs.frozen:
        given = "".join(f"args[{position}], " for position in needs.frozen)
        test = f"True in map({source.bind('requires_grad', requires_grad)}, ({given}))"
        source.line(1, f"if {test}: return elsewhere(args)")
    roles = (role for role in (*signature.outputs, *signature.effects) if isinstance(role, Mutation | Written))
    written = {of for role in roles for of in _inputs_of(role.of)}
    # neither what an input is nor the mode of a call is among Dynamo's guards, and it compiles outside of that mode
    is_on = f" and not {source.bind('in_inference', torch.is_inference_mode_enabled)}()"
    positions = sorted(r.index for r in written if isinstance(r, UserInput) or r.index in needs.inference)
    tests = [f"args[{index}].is_inference()" for index in positions]
    if len(tests) > MOST_INLINE:
        given = ", ".join(f"args[{index}]" for index in positions)
        tests = [f"True in map({source.bind('is_inference', torch.Tensor.is_inference)}, ({given}))"]
    for test in tests:
        source.line(1, f"if {test}{is_on}: return eager(args, {INFERENCE!r})")
    seen = (of for role in signature.differentiable if isinstance(role, Mutation) for of in _inputs_of(role.of))
    for index in sorted(of.index for of in seen):
        source.line(1, f"if {source.bind('is_watched', is_watched)}(args[{index}]): return eager(args, {WATCHED!r})")


def _emit_facts(source: Source, program: Program, positions: tuple[int, ...]) -> None:
    """The guard of inputs against others that the graph was not made for."""
    values = {position: program.placeholders[position].meta["val"] for position in positions}
    wrappers = {position: value for position, value in values.items() if is_wrapper(value)}
    for position, value in wrappers.items():
        made = source.bind("made", ExpectedWrapper.of(value))
        source.line(1, f"if not {made}.is_met_by(args[{position}]): return elsewhere(args)")
    if plain := [position for position in positions if position not in wrappers]:
        known = source.bind("known", ExpectedInputs.of(values[position] for position in plain))
        given = ", ".join(f"args[{position}]" for position in plain)
        source.line(1, f"if not ({known}.check({given}) or {known}.look({given})): return elsewhere(args)")


def _given(role: InputRole) -> str:
    """The expression for an input of the graph: memory that inputs share, or an input of the call."""
    match role:
        case Shared():
            return name_of_kept(role)
        case UserInput(index) | Parameter(index=index) | Buffer(index=index):
            return f"args[{index}]"
    raise AssertionError(role)


def _emit_overlap(source: Source, program: Program) -> None:
    """The guard of written inputs against others; first, where there are few, whether they share a storage at all."""
    tensors = [index for index, node in enumerate(program.placeholders) if is_tensor(node)]
    written = written_positions(program.signature)
    has_inner = any(is_wrapper(program.placeholders[index].meta["val"]) for index in tensors)
    pairs = list(pairs_of(written, tensors))
    if not pairs and not (written and has_inner):
        return
    test = "is_overlapping(args)"
    if len(pairs) <= PAIRS_INLINE and not has_inner:
        alias = source.bind("is_alias", is_alias)
        test = f"({' or '.join(f'{alias}(args[{p}], args[{q}])' for p, q in pairs)}) and {test}"
    source.line(1, f"if {test}: return elsewhere(args)")


def _inputs_of(of: CallInput | Shared) -> tuple[CallInput, ...]:
    """An input, or all those that share memory."""
    return of.of if isinstance(of, Shared) else (of,)


def _begins_elsewhere(effect: Begins) -> str:
    """The test of an input that begins where the call was not recorded for."""
    remainder = "" if effect.divisor is None else f" % {effect.divisor}"
    return f"args[{effect.of.index}].storage_offset(){remainder} != {effect.offset}"


def _needed(signature: Signature) -> set[int]:
    """The positions of the inputs that the epilogue needs."""
    roles = {result.of for result in signature.results if isinstance(result, (Input, View))}
    roles |= {role.of for role in signature.outputs if isinstance(role, Mutation)}
    roles |= {
        effect.of for effect in signature.effects if isinstance(effect, (Restride, Detach, Bump, Resized, Replaced))
    }
    views = (effect.by for effect in signature.effects if isinstance(effect, Replaced))
    roles |= {view.of for view in views if isinstance(view, View)}
    roles |= {effect.of for effect in signature.effects if isinstance(effect, Written) and effect.by}
    return {role.index for role in roles if isinstance(role, (UserInput, Parameter, Buffer))}


def _shared_text(source: Source, role: Shared) -> str:
    members = ", ".join(f"args[{member.index}]" for member in role.of)
    if role.extent is None:
        return f"{source.bind('base_of', base_of)}({members})"
    return f"{source.bind('laid_over', laid_over)}({role.extent}, {members})"


def scatters_by_strides(program: Program) -> bool:
    """Whether a graph makes scatters that refuse what requires grad, whatever the mode, unless it is contiguous."""
    target = torch.ops.aten.as_strided_scatter.default
    return bool(program.module.graph.find_nodes(op="call_function", target=target))
