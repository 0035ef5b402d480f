"""After the graph: write-backs, effects, and the results in their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.compiler.codegen.call.source import Source, name_of, name_of_kept, name_of_result
from assay.compiler.codegen.call.versions import emit_bumps
from assay.compiler.codegen.call.views import emit_result, emit_view, is_ahead, is_behind, step_text
from assay.compiler.ir.graph.roles import (
    Buffer,
    Bump,
    CallInput,
    Detach,
    Effect,
    GradMode,
    Mutation,
    Replaced,
    Resized,
    Restride,
    Same,
    Shared,
    Signature,
    Size,
    Varies,
    View,
    Written,
)
from assay.compiler.runtime.call import (
    bump_version,
    cut_off,
    leaf_grad_off,
    note_varying,
    overwrite,
    resize_storage,
    write_back,
)
from assay.compiler.torch_compat import BEFORE_2_13


def emit_epilogue(source: Source, signature: Signature, checked: Sequence[CallInput | Shared] = ()) -> None:
    results = dict(enumerate(signature.results))
    names: dict[int, str] = {}
    for index, result in results.items():
        if is_behind(result):
            names[index] = emit_view(source, index, result, names)
        elif is_ahead(result):
            names[index] = name_of_result(index)
    if any(map(is_behind, signature.results)):
        emit_bumps(source, signature)
    for effect in signature.effects:
        _emit_effect(source, effect)
    _emit_writes(source, signature)
    for of in checked:
        kept = name_of_kept(of)
        source.line(1, f"written.append(({kept}.detach(), {kept}._version))")
    for place, effect in enumerate(signature.effects):
        if isinstance(effect, Replaced):
            _emit_resizes(source, signature.effects[:place], effect.of)
            _emit_replaced(source, len(results) + place, effect)
    for index in sorted(results.keys() - names.keys(), key=lambda index: _depth(signature, index)):
        names[index] = emit_result(source, index, results[index], names)
    replaced = {effect.of: place for place, effect in enumerate(signature.effects) if isinstance(effect, Replaced)}
    for place, effect in enumerate(signature.effects):
        if isinstance(effect, Resized) and place > replaced.get(effect.of, -1):
            _emit_resizes(source, [effect], effect.of)
    for effect in signature.effects:
        if isinstance(effect, Varies) and not BEFORE_2_13:
            source.line(1, f"{source.bind('note_varying', note_varying)}({names[effect.index]}, {{*{effect.dims}}})")
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
                source.line(1, f"with {off}(keep_{of.index}): {step_text(source, f'keep_{of.index}', step)}")
        case Detach(of):
            source.line(1, f"{source.bind('cut_off', cut_off)}(keep_{of.index})")
        case Bump(of, Size() as size, less):
            grown = f"{name_of(size)} - {less}" if less else name_of(size)
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{of.index}, {grown})")
        case Written(of, by) if by:
            source.line(1, f"{source.bind('bump_version', bump_version)}(keep_{of.index}, {by})")


def _emit_resizes(source: Source, effects: Sequence[Effect], of: CallInput) -> None:
    for effect in effects:
        if isinstance(effect, Resized) and effect.of == of:
            nbytes = name_of(effect.nbytes) if isinstance(effect.nbytes, Size) else effect.nbytes
            source.line(1, f"{source.bind('resize_storage', resize_storage)}({name_of_kept(of)}, {nbytes})")


def _emit_replaced(source: Source, index: int, effect: Replaced) -> None:
    """An input is given the memory of another tensor, which is made as a result of this index would be."""
    kept, new = name_of_kept(effect.of), emit_result(source, index, effect.by, {})
    if effect.is_data:
        source.line(1, f"{kept}.data = {new}")
    else:
        source.line(1, f"{source.unrecorded()}{kept}.set_({new})")
    if effect.growth:
        source.line(1, f"{source.bind('bump_version', bump_version)}({kept}, {effect.growth})")


def _emit_writes(source: Source, signature: Signature) -> None:
    """The values of inputs after the call, several at once where autograd has no part in it."""
    writes = [role for role in signature.outputs if isinstance(role, Mutation)]
    together: set[Mutation] = set()
    for kind, guard in (("hidden", ""), ("seen", ""), ("no_grad", source.unrecorded())):
        alike = [role for role in writes if role.kind == kind and _is_unrecorded(role, signature)]
        if len(alike) < 2:
            continue
        times = (0 if kind == "hidden" else role.writes for role in alike)
        texts = ((name_of_kept(r.of), name_of(r), str(count)) for r, count in zip(alike, times, strict=True))
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


def _emit_write(source: Source, role: Mutation) -> None:
    kept, new = name_of_kept(role.of), name_of(role)
    if role.kind == "hidden":
        source.line(1, f"{kept}.data.copy_({new})")
        return
    if role.kind == "no_grad":
        source.line(1, f"{source.unrecorded()}{kept}.copy_({new})")
    else:
        source.line(1, f"{source.bind('overwrite', overwrite)}({kept}, {new})")
    if role.writes != 1:
        source.line(1, f"{source.bind('bump_version', bump_version)}({kept}, {role.writes - 1})")
