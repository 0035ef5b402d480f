"""The whole compiler on one page. Read this first.

    call -> capture -> [differentiate -> partition] -> lower -> fuse -> plan -> emit -> load -> link

`compile` is the top half: a call becomes a functional graph and, when eager would record gradients, a forward and a
backward. `build` is the bottom half: a graph becomes kernels and the straight-line host function that launches them.
`link` renders the calling convention around both.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Node

from compiler.autograd.higher_order import as_recorded, gradients_again
from compiler.autograd.joint import differentiate
from compiler.autograd.missing_tangents import copied, unwritten, without
from compiler.autograd.partition import Split, default_split
from compiler.autograd.saved_hooks import GraphHooks, packed
from compiler.capture.ambient import Ambient, transforms_left
from compiler.capture.decompositions.table import DECOMPOSITIONS
from compiler.capture.functionalize import capture
from compiler.capture.inputs import Call
from compiler.codegen.call.convention import (
    AmbientNeeds,
    check_versions,
    emit_call,
    emit_differentiable_call,
    partial_backward,
    roots_of,
    written_positions,
)
from compiler.codegen.call.gradient_orders import kept_by, order_of, unpacking_of
from compiler.codegen.cpp.kernel import emit_kernel
from compiler.codegen.host import emit, load
from compiler.codegen.triton.programs import emit_programs, takes
from compiler.ir.graph.captured import Captured
from compiler.ir.graph.derivative_path import Path
from compiler.ir.graph.replacement import verify_views
from compiler.ir.graph.roles import Gradient, GraphCall, Inference, Mutation, Program, Signature, Tangent
from compiler.ir.loops.kernel import Kernel
from compiler.ir.loops.live_memory import live_bytes
from compiler.ir.loops.text import show
from compiler.ir.tensors.devices import has_triton
from compiler.ir.tensors.overlap import overlap_test
from compiler.ir.tensors.strides import has_symbols
from compiler.journal import Journal, say_once
from compiler.ops import lower
from compiler.ops.lower import ON_CPU, Target
from compiler.options import Options
from compiler.passes import DRAWN, FUNCTIONAL, MERGED, PASSES, Pass
from compiler.runtime.higher_order import HigherOrder, Order, Roots, Sizes
from compiler.runtime.partial_backward import PartialBackward
from compiler.runtime.specialize import Specialized
from compiler.schedule.fuse import fuse
from compiler.schedule.order import plan
from compiler.schedule.products import Choose
from compiler.toolchain.build import find_compiler
from compiler.toolchain.load import choose_products, load_kernels
from compiler.toolchain.serialized_call import Host, Linked
from compiler.torch_compat import Decompositions

LoadKernels = Callable[[Sequence[Kernel], Options], Mapping[str, Callable[..., None]]]
"""Kernels as callables by their names."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """Who builds the graphs of one compile. `assay` builds all three itself; `aot_function` lets its caller do so.

    `write` makes writes in place; programs for a caller's own compilers stay functional. `keep` is told of a call's
    text, with the programs of its graphs by the names that the text gives them.
    """

    forward: Callable[[Program], GraphCall]
    backward: Callable[[Program], GraphCall]
    inference: Callable[[Program], GraphCall]
    partition: Callable[[Program], Split] = default_split
    decompositions: Decompositions = field(default_factory=lambda: DECOMPOSITIONS)
    write: Callable[[Program], Program] | None = None
    keep: Callable[[Linked, Mapping[str, Program]], None] | None = None
    passes: tuple[Pass, ...] = PASSES


def compile(call: Call, compilers: Compilers, journal: Journal) -> GraphCall:
    """A call, compiled. The result takes the call's leaves as one list and returns its flat results.

    Raises: Unsupported for a program that the compiler cannot take.
    """
    with journal.stage("capture"):
        captured = capture(call, compilers.decompositions)
    if captured.needs_gradient:
        return _compile_halves(call, _halve(captured, call, compilers, journal), compilers, journal)
    program = _written(optimize(captured.finish(), compilers.passes, journal, "captured"), compilers, journal)
    source, signature = emit_call(program, _needs(call, program.signature)), program.signature
    linked = Linked(source.text, source.namespace, written_positions(signature), any(_required(call)))
    graph = compilers.inference(program)
    if compilers.keep is not None:
        compilers.keep(linked, {"graph": program})
    again = specialized(call, compilers, linked.versions, journal.options)
    return load_call(linked, {"graph": graph}, again, journal)


@dataclass(frozen=True, slots=True)
class Halves:
    """A call that records gradients: its forward and backward, the backwards without some of the tangents, the
    gradients of its gradients, the backward as it was recorded, its text."""

    split: Split
    partial: PartialBackward
    higher: HigherOrder
    recorded: GraphCall
    linked: Linked


def halves_of(call: Call, compilers: Compilers, journal: Journal) -> Halves:
    """The halves of a call that records gradients; nothing is built yet."""
    return _halve(capture(call, compilers.decompositions), call, compilers, journal)


def _split(captured: Captured, compilers: Compilers, journal: Journal) -> Split:
    """Forward and backward, still functional."""
    with journal.stage("differentiate"):
        joint = differentiate(captured)
    joint = optimize(joint, compilers.passes, journal, "joint")
    with journal.stage("partition"):
        split = compilers.partition(joint)
    journal.decided(split.decisions)
    return split


def _halve(captured: Captured, call: Call, compilers: Compilers, journal: Journal) -> Halves:
    hooks = GraphHooks.now(journal.options.saved_tensors_hooks)
    split = plain = _split(captured, compilers, journal)
    unpack = None
    if hooks is not None:
        plain = Split(copied(split.forward), split.backward)
        split, made = packed(split, hooks, compilers.decompositions)
        unpack = unpacking_of(plain.forward, split.forward, made, hooks.unpack)
    functional = unwritten(split.backward)
    split = Split(_written(split.forward, compilers, journal), _written(split.backward, compilers, journal))

    def build_without(missing: frozenset[Tangent]) -> tuple[Program, GraphCall]:
        partial = without(functional, missing)
        _check(partial, journal)
        program = _written(partial, compilers, journal)
        return program, compilers.backward(program)

    recorded = recorded_backward(call, compilers, journal, hooks)
    partial = partial_backward(split.forward, split.backward, build_without, recorded)
    roots = roots_of(split.forward, tuple(captured.leaves), call.sizes().values())
    forward = split.forward if hooks is None else plain.forward
    higher = higher_order(roots, call, compilers, lambda: forward, journal)
    higher.unpack = unpack
    needs = replace(_needs(call, split.forward.signature), hooks_off=hooks is not None)
    linked = _link_differentiable(split, partial, higher, call, needs)
    return Halves(split, partial, higher, recorded, linked)


def recorded_backward(
    call: Call, compilers: Compilers, journal: Journal, hooks: GraphHooks | None = None
) -> Callable[..., Sequence[object]]:
    """The backward operator by operator, for tangents that no kernel takes, as those of a batch are. It is recorded
    when it is first asked for."""
    ambient = Ambient.now()

    def make() -> PartialBackward:
        with ambient.restored(), transforms_left():
            split = _split(capture(call, compilers.decompositions), compilers, journal)
            if hooks is not None:
                split, _ = packed(split, hooks, compilers.decompositions)
            split = Split(_written(split.forward, compilers, journal), split.backward)

        def build(missing: frozenset[Tangent]) -> tuple[Program, GraphCall]:
            program = without(split.backward, missing)
            return program, by_operators(program)

        return partial_backward(split.forward, split.backward, build)

    return lazily(make)


def by_operators(program: Program) -> GraphCall:
    """A functional graph, run operator by operator."""
    module = program.module
    return lambda args: module(*args)  # type: ignore[no-any-return]


def higher_order(
    roots: Roots, call: Call, compilers: Compilers, forward: Callable[[], Program], journal: Journal
) -> HigherOrder:
    """The gradients of a call's gradients, which nothing is done for until they are asked for.

    Where sizes are symbols, each order is recorded for the numbers that they are: its formulas ask for sizes, and by
    then it is too late for guards.
    """
    ambient = Ambient.now()
    merged = [step for step in compilers.passes if step is MERGED]
    drawn = [step for step in compilers.passes if step in (FUNCTIONAL, *DRAWN)]

    def make(path: Path, at: Sizes, is_open: bool) -> Order:
        sizes = dict(zip(call.sizes(), at, strict=True))
        with ambient.restored(), transforms_left(), journal.stage("differentiate"):
            captured = capture(call.at(sizes) if sizes else call, compilers.decompositions)
            kept = kept_by(forward())
            if sizes:
                kept = as_recorded(kept, capture(call, compilers.decompositions), captured)
            is_drawn = not any(has_symbols(node.meta.get("val")) for node in forward().placeholders)
            steps = [*merged, *(drawn if is_drawn else ())]
            prepare = functools.partial(optimize, passes=steps, journal=journal, name="recorded again")
            again = gradients_again(captured, path, kept, sizes, is_open=is_open, prepare=prepare)
        program = optimize(again.program, compilers.passes, journal, f"order_{len(path)}")
        recorded = by_operators(copied(program))
        return order_of(forward(), again, compilers.backward(_written(program, compilers, journal)), recorded)

    return HigherOrder(make, roots, check_versions)


def _compile_halves(call: Call, halves: Halves, compilers: Compilers, journal: Journal) -> GraphCall:
    split = halves.split
    forward, backward = compilers.forward(split.forward), lazily(lambda: compilers.backward(split.backward))
    if compilers.keep is not None:
        compilers.keep(halves.linked, {"forward_graph": split.forward, "backward_graph": split.backward})
    graphs = {
        "forward_graph": forward,
        "backward_graph": backward,
        "partial_backward": halves.partial,
        "higher_order": halves.higher,
        "recorded_backward": halves.recorded,
    }
    return load_call(halves.linked, graphs, specialized(call, compilers, True, journal.options), journal)


def _required(call: Call) -> Iterator[bool]:
    return (leaf.requires_grad for leaf in call.leaves)


def specialized(call: Call, compilers: Compilers, versions: bool, options: Options) -> Specialized:
    """The call for inputs that overlap, compiled for each way in which they do."""
    own = replace(compilers, keep=None)
    compile_for = functools.partial(specialize, call, own, options, versions)
    return Specialized(compile_for, call.eager, versions, options.fallback, call.nodes)


def specialize(
    call: Call, compilers: Compilers, options: Options, versions: bool, leaves: Sequence[object]
) -> GraphCall:
    """The call, compiled for these very layouts and overlaps of its inputs, and for which of them require grad."""
    records = versions or any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
    return compile(call.specialized(leaves, records), compilers, Journal.open(options))


def build(
    program: Program,
    options: Options,
    journal: Journal,
    load_kernels: LoadKernels = load_kernels,
    choose: Choose | None = None,
) -> Host:
    """A functional graph as one host function over generated kernels and calls to ATen. `choose` says which products of
    matrices are kernels of ours; by default it is measured, where the options ask for that."""
    if choose is None and options.tune and options.numerics != "exact":
        choose = functools.partial(choose_products, options=options, journal=journal)
    with journal.stage("lower"):
        lowered = lower(program, targets_of(options), is_exact=options.numerics == "exact")
    with journal.stage("fuse"):
        fused = fuse(lowered, keep_rounding=options.numerics != "fast")
    with journal.stage("plan"):
        schedule = plan(fused, after_call(program), choose)
    is_backward = any(isinstance(role, Tangent) for role in program.signature.inputs)
    journal.planned(is_backward, lambda given: live_bytes(schedule.steps, _values(program), given))
    journal.state("schedule", lambda: "\n\n".join(show(kernel) for kernel in schedule.kernels))
    with journal.stage("emit"):
        source = emit(schedule)
    journal.state("source_graph", lambda: source)
    journal.state("source_kernels", lambda: "\n".join(source_of(kernel) for kernel in schedule.kernels))
    with journal.stage("build kernels"):
        kernels = load_kernels(schedule.kernels, options)
    journal.count(schedule.counts, len(schedule.kernels))
    journal.kernels(schedule)
    return Host(source, schedule.constants, kernels, schedule.counts, schedule.steps)


def _values(program: Program) -> dict[str, object]:
    """The values of a program, by name."""
    return {node.name: node.meta.get("val") for node in program.module.graph.nodes}


def after_call(program: Program) -> dict[str, str]:
    """The values that inputs hold after the call and nobody else gets, by name, and the inputs; none where autograd
    records the call, which then returns them, nor of an input that shares its memory with others."""
    if program.signature.differentiable:
        return {}
    names = {role: node.name for role, node in zip(program.signature.inputs, program.placeholders, strict=True)}
    returned = Counter(node for node in program.returned if isinstance(node, Node))
    pairs = zip(program.signature.outputs, program.returned, strict=True)
    return {
        node.name: names[role.of]
        for role, node in pairs
        if isinstance(role, Mutation) and role.of in names and isinstance(node, Node) and returned[node] == 1
    }


def source_of(kernel: Kernel) -> str:
    """The text of a kernel in the language of its device."""
    if kernel.device.type == "cpu":
        return emit_kernel(kernel)
    return "\n\n".join(program.text for program in emit_programs(kernel))


def targets_of(options: Options) -> Mapping[str, Target]:
    """The types of devices that kernels are made for here, each with what it takes."""
    if target_of(options) == "aten":
        return {}
    return {**ON_CPU, "cuda": takes} if has_triton() else ON_CPU


@functools.cache
def target_of(options: Options) -> str:
    """The target that this machine serves: with no C++ compiler all operators are calls to ATen, and that is said."""
    if options.target == "cpp" and find_compiler(options.cxx) is None:
        wanted = options.cxx or "g++, c++ or clang++"
        say_once(f"assay: no C++ compiler runs here ({wanted}): all operators are calls to ATen; set ASSAY_CXX to one")
        return "aten"
    return options.target


def optimize(program: Program, passes: Sequence[Pass], journal: Journal, name: str) -> Program:
    """Runs the passes, in order."""
    journal.state(name, lambda: program.module.print_readable(print_output=False))
    for step in passes:
        with journal.stage(step.name):
            changed = step.run(program)
        if changed:
            _check(program, journal)
            journal.state(step.name, lambda: program.module.print_readable(print_output=False))
    return program


def _check(program: Program, journal: Journal) -> None:
    """Checks a graph that has changed, where the options ask for that. Raises: VerifyError."""
    if journal.options.verify:
        verify_views(program.module.graph)


def _written(program: Program, compilers: Compilers, journal: Journal) -> Program:
    """The program with its writes in place, for compilers that take such."""
    if compilers.write is None:
        return program
    with journal.stage("write_in_place"):
        program = compilers.write(program)
    _check(program, journal)
    journal.state("write_in_place", lambda: program.module.print_readable(print_output=False))
    return program


def lazily(make: Callable[[], Callable[..., Sequence[object]]]) -> Callable[..., Sequence[object]]:
    """Makes the graph when it is first called: many backwards never run."""
    lock = threading.Lock()
    made: list[Callable[..., Sequence[object]]] = []

    def run(*args: Any) -> Sequence[object]:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0](*args)

    return run


def _link_differentiable(
    split: Split, partial: PartialBackward, higher: HigherOrder, call: Call, needs: AmbientNeeds
) -> Linked:
    """The text of the calling convention around a forward, a backward, and the backwards without some tangents."""
    signature = split.forward.signature
    reached = {role.of for role in split.backward.signature.outputs if isinstance(role, Gradient)}
    apart = {leaf.role for leaf in call.leaves if leaf.requires_grad and leaf.role in signature.inputs} - reached
    source = emit_differentiable_call(split.forward, split.backward, needs, higher.roots, apart if reached else set())
    return Linked(source.text, source.namespace, written_positions(signature), True, partial, higher)


def load_call(linked: Linked, graphs: Mapping[str, object], again: Specialized, journal: Journal) -> GraphCall:
    """The call, with its graphs and its guard against inputs that overlap."""
    journal.state("source_call", lambda: linked.text)
    guard = {
        "is_overlapping": overlap_test(linked.written, again.versions),
        "elsewhere": again,
        "eager": again.eager,
    }
    return load(linked.text, {**linked.namespace, **graphs, **guard}, "call", linked.code)


def _needs(call: Call, signature: Signature) -> AmbientNeeds:
    """Kernels run below autograd and autocast: both are in the graph already."""
    ambient = Ambient.now()
    return AmbientNeeds(
        grad_off=ambient.grad and any(leaf.requires_grad for leaf in call.leaves),
        autocast_off=bool(ambient.autocast),
        grad_on=bool(signature.differentiable) and not ambient.grad,
        is_grad_off=not ambient.grad,
        inference_on=Inference() in signature.effects,
        is_guarded=not call.is_specialized,
        frozen=call.frozen if ambient.grad else (),
        current=call.current,
        inference=tuple(position for position, leaf in enumerate(call.leaves) if leaf.is_inference),
    )
