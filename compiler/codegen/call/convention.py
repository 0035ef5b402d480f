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

from collections.abc import Collection

import torch

from assay.compiler.codegen.call.epilogue import emit_epilogue
from assay.compiler.codegen.call.gradients.backward_half import emit_backward_half
from assay.compiler.codegen.call.gradients.forward_half import emit_forward_half, saved_as_written
from assay.compiler.codegen.call.graph_run import emit_inference, emit_run
from assay.compiler.codegen.call.prologue import ANOMALY, AmbientNeeds, emit_head, scatters_by_strides
from assay.compiler.codegen.call.replay import emit_made_again, is_made_again
from assay.compiler.codegen.call.source import Source
from assay.compiler.codegen.call.written_views import emit_parts
from assay.compiler.ir.graph.roles import Gradient, Inference, InputRole, Program, UserOutput
from assay.compiler.runtime.call import apply_of, in_anomaly_mode, in_transform, traced_when_inlined, without_history
from assay.compiler.runtime.higher_order import Roots


def emit_call(program: Program, needs: AmbientNeeds) -> Source:
    """The function `call(args)` of a program without gradients; the namespace still lacks `graph`."""
    signature = program.signature
    outside = frozenset(
        effect.of.index
        for effect in signature.effects
        if isinstance(effect, Inference) and isinstance(effect.of, UserOutput) and effect.of not in signature.outputs
    )
    source = Source(namespace={"torch": torch}, is_grad_off=needs.is_grad_off, views_outside=outside)
    emit_head(source, program, needs)
    given = f"{source.bind('without_history', without_history)}(args)" if scatters_by_strides(program) else "args"
    run = Source(namespace=source.namespace)
    emit_run(run, program, signature.outputs, f"graph({given})", needs)
    emit_inference(run, signature)
    _emit_run(source, program, run)
    emit_epilogue(source, signature)
    return source


def emit_differentiable_call(
    forward: Program, backward: Program, needs: AmbientNeeds, roots: Roots, apart: Collection[InputRole] = ()
) -> Source:
    """`call(args)` over an autograd function; the namespace still lacks its graphs and `higher_order`.

    `apart` are inputs that require grad and get none: autograd must not come to what is behind them. Where that is all
    of them, a result that requires grad still has a history: of leaves that nobody else has, as views without gradients
    are in eager.
    """
    signature = forward.signature
    source = Source(namespace={"torch": torch, "apply_of": apply_of})
    source.line(0, "class Graph(torch.autograd.Function):")
    emit_forward_half(source, forward, backward, needs, roots)
    emit_backward_half(source, forward, backward, needs, roots)
    source.line(0, f"{source.bind('traced_when_inlined', traced_when_inlined)}(Graph.backward)")
    source.line(0, "quick_apply = apply_of(Graph)")
    emit_head(source, forward, needs)
    source.line(1, f"if {source.bind('in_anomaly_mode', in_anomaly_mode)}(): return eager(args, {ANOMALY!r})")
    visible = signature.handed_on
    around = AmbientNeeds(grad_off=False, autocast_off=False, grad_on=needs.grad_on, hooks_off=needs.hooks_off)
    checked = saved_as_written(forward)
    if checked:
        source.line(1, "written = []")
    if apart:
        is_reached = any(isinstance(role, Gradient) for role in backward.signature.outputs)
        cut = ".detach()" if is_reached else ".detach().requires_grad_()"
        given = [f"args[{i}]{cut * (role in apart)}" for i, role in enumerate(signature.inputs)]
        source.line(1, f"args = [{', '.join(given)}]")
    emit_parts(source, forward, backward)
    apply = f"(Graph.apply if {source.bind('in_transform', in_transform)}() else quick_apply)"
    run = Source(namespace=source.namespace)
    emit_run(run, None, visible, f"{apply}({'written, ' if checked else ''}*args)", around, "_" * roots.is_anchored)
    emit_inference(run, signature)
    _emit_run(source, forward, run)
    emit_epilogue(source, signature, checked)
    return source


def _emit_run(source: Source, program: Program, run: Source) -> None:
    if is_made_again(program):
        emit_made_again(source, program, run)
    else:
        source.lines.extend(run.lines)
