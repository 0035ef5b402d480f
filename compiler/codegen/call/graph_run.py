"""The graph itself: its call in the modes that it needs, and what becomes of inputs that it writes."""

from __future__ import annotations

import torch

from assay.compiler.codegen.call.prologue import AmbientNeeds
from assay.compiler.codegen.call.source import Source, name_of
from assay.compiler.ir.graph.roles import Base, Inference, Layout, OutputRole, Program, Signature, UserOutput
from assay.compiler.ir.graph.trace import is_view
from assay.compiler.runtime.call import GradOff, as_no_view, hooks_off, inside_inference, outside_inference, relaid


def emit_run(
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


def emit_inference(source: Source, signature: Signature) -> None:
    """Outputs that the program makes in inference mode, or outside of it, where the call is not made so."""
    for effect in signature.effects:
        if isinstance(effect, Inference) and effect.of in signature.outputs:
            name, made_in = name_of(effect.of), inside_inference if effect.is_on else outside_inference
            again = f"{source.bind('as_no_view', as_no_view)}({name})"
            source.line(1, f"with {source.bind(made_in.__name__, made_in)}(): {name} = {again}")


def _views_among(program: Program) -> list[OutputRole]:
    """The results that the graph computes as views and that are none to the caller: their strides were set in place."""
    pairs = zip(program.signature.outputs, program.returned, strict=True)
    results = [(role, node) for role, node in pairs if isinstance(role, (UserOutput, Base))]
    return [role for role, node in results if isinstance(node, torch.fx.Node) and is_view(node)]
