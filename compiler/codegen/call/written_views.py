"""Lines for the inputs that a call writes and that may be views, where autograd records the writes."""

from __future__ import annotations

from collections.abc import Iterator

from assay.compiler.codegen.call.source import Source, is_tensor, name_of
from assay.compiler.ir.graph.roles import CallInput, Gradient, Mutation, OutputRole, Program, Rebased, Shared
from assay.compiler.runtime.written_views import note_others, part_of_base


def emit_parts(source: Source, forward: Program, backward: Program) -> None:
    """Lines in front of a forward: it is given views as parts of their bases."""
    for of, others in _written(forward, backward):
        place = forward.signature.inputs.index(of)
        is_alone = Rebased(of) in forward.signature.effects and not others
        source.line(1, f"args[{place}] = {source.bind('part_of_base', part_of_base)}(args[{place}], {is_alone})")


def emit_notes(source: Source, forward: Program, backward: Program) -> None:
    """The first lines of a backward: whether it is given more than the gradients of what was written."""
    pairs = zip(forward.signature.inputs, forward.placeholders, strict=True)
    tensors = [role for role, node in pairs if is_tensor(node)]
    for of, others in _written(forward, backward):
        if others and Rebased(of) in forward.signature.effects:
            tangents = ", ".join(f"tangent_{name_of(role)}" for role in others)
            note = source.bind("note_others", note_others)
            source.line(2, f"{note}(ctx.next_functions[{tensors.index(of)}][0], {tangents})")


def _written(forward: Program, backward: Program) -> Iterator[tuple[CallInput, list[OutputRole]]]:
    """The written inputs that get gradients, each with the outputs beside its new value that these lead from."""
    written = {role.of: role for role in forward.signature.differentiable if isinstance(role, Mutation)}
    for role in backward.signature.outputs:
        if isinstance(role, Gradient) and not isinstance(role.of, Shared) and role.of in written:
            yield role.of, sorted(role.through - {written[role.of]}, key=name_of)
