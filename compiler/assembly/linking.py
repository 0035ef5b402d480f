"""The calling convention around built graphs: its text, what guards it, and the call that it loads as."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.autograd.partition import Split
from assay.compiler.capture.ambient import Ambient
from assay.compiler.capture.inputs import Call
from assay.compiler.codegen.call.convention import emit_call, emit_differentiable_call
from assay.compiler.codegen.call.prologue import AmbientNeeds, written_positions
from assay.compiler.codegen.host import load
from assay.compiler.errors import Unexpected, Unsupported
from assay.compiler.ir.graph.roles import Gradient, GraphCall, Program, Signature
from assay.compiler.ir.tensors.layout.overlap import overlap_test
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.runtime.higher_order import HigherOrder
from assay.compiler.runtime.partial_backward import PartialBackward
from assay.compiler.runtime.specialize import Specialized
from assay.compiler.toolchain.serialized_call import Linked

Compile: TypeAlias = Callable[[Call, Compilers, Journal], GraphCall]
"""`pipeline.compile`."""


def link(program: Program, call: Call) -> Linked:
    """The text of the calling convention around one graph."""
    source, signature = emit_call(program, ambient_needs(call, program.signature)), program.signature
    return Linked(source.text, source.namespace, written_positions(signature), any(_required(call)))


def link_differentiable(
    split: Split, partial: PartialBackward, higher: HigherOrder, call: Call, needs: AmbientNeeds
) -> Linked:
    """The text of the calling convention around a forward, a backward, and the backwards without some tangents."""
    signature = split.forward.signature
    reached = {role.of for role in split.backward.signature.outputs if isinstance(role, Gradient)}
    apart = {leaf.role for leaf in call.leaves if leaf.requires_grad and leaf.role in signature.inputs} - reached
    source = emit_differentiable_call(split.forward, split.backward, needs, higher.roots, apart)
    return Linked(source.text, source.namespace, written_positions(signature), True, partial, higher)


def load_call(linked: Linked, graphs: Mapping[str, object], again: Specialized, journal: Journal) -> GraphCall:
    """The call, with its graphs and its guard against inputs that overlap."""
    journal.state("source_call", lambda: linked.text)
    guard = {
        "is_overlapping": overlap_test(linked.written, again.versions),
        "elsewhere": again,
        "eager": again.eager,
        "again": again.again,
    }
    return load(linked.text, {**linked.namespace, **graphs, **guard}, "call", linked.code)


def _required(call: Call) -> Iterator[bool]:
    return (leaf.requires_grad for leaf in call.leaves)


def specialized(compile: Compile, call: Call, compilers: Compilers, versions: bool, options: Options) -> Specialized:
    """The call for inputs that overlap, compiled for each way in which they do."""
    own = replace(compilers, keep=None)
    compile_for = functools.partial(_specialize, compile, call, own, options, versions)
    return Specialized(compile_for, call.eager, versions, options.fallback, call.nodes)


def _specialize(
    compile: Compile, call: Call, compilers: Compilers, options: Options, versions: bool, leaves: Sequence[object]
) -> GraphCall:
    """The call, compiled for these very layouts and overlaps of its inputs, and for which of them require grad."""
    records = versions or any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
    try:
        return compile(call.specialized(leaves, records), compilers, Journal.open(options))
    except Unsupported as reason:
        pieces = None if isinstance(reason, Unexpected) or call.pieces is None else call.pieces(reason, leaves)
        if pieces is None:
            raise
        return pieces


def ambient_needs(call: Call, signature: Signature) -> AmbientNeeds:
    """Kernels run below autograd and autocast: both are in the graph already."""
    ambient = Ambient.now()
    return AmbientNeeds(
        grad_off=ambient.grad and any(leaf.requires_grad for leaf in call.leaves),
        autocast_off=bool(ambient.autocast),
        grad_on=bool(signature.differentiable) and not ambient.grad,
        is_grad_off=not ambient.grad,
        is_guarded=not call.is_specialized,
        frozen=call.frozen() if ambient.grad and not call.is_specialized else (),
        unguarded=() if call.is_specialized else call.unguarded,
        current=call.current,
        inference=tuple(position for position, leaf in enumerate(call.leaves) if leaf.is_inference),
    )
