"""Calls that record gradients: their halves, and what backward is where it is asked for in another way.

    forward, backward          the two halves of the joint graph
    partial backwards          for when some results get no gradient; each is made when it is first needed
    recorded backward          operator by operator, for tangents that no kernel takes
    higher order               gradients of gradients, recorded when they are first asked for

Only the text of the call is made at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.linking import ambient_needs, link_differentiable
from assay.compiler.autograd.higher_order import as_recorded, gradients_again
from assay.compiler.autograd.missing_tangents import copied, unwritten, without
from assay.compiler.autograd.partition import Split, split_at
from assay.compiler.autograd.saved_hooks import GraphHooks, packed
from assay.compiler.capture.ambient import Ambient, transforms_left
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call
from assay.compiler.codegen.call.gradients.backward_half import partial_backward
from assay.compiler.codegen.call.gradients.forward_half import SavedValues, roots_of
from assay.compiler.codegen.call.gradients.gradient_orders import kept_by, order_of, unpacking_of
from assay.compiler.errors import VerifyError
from assay.compiler.ir.graph.backward.derivative_path import Path
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.recording_lock import recording_lock
from assay.compiler.ir.graph.roles import GraphCall, Program, Tangent
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.journal import Journal
from assay.compiler.passes import DRAWN, FUNCTIONAL, MERGED
from assay.compiler.passes.runner import check, optimize, written
from assay.compiler.runtime.call import check_versions
from assay.compiler.runtime.higher_order import HigherOrder, Order, Roots
from assay.compiler.runtime.inlined_backward import inlined_backward
from assay.compiler.runtime.partial_backward import Part, PartialBackward
from assay.compiler.runtime.saved_values import Sizes
from assay.compiler.toolchain.serialized_call import Linked

Divide: TypeAlias = Callable[[Captured, Compilers, Journal], Split]
"""`pipeline.divide`."""


@dataclass(frozen=True, slots=True)
class Halves:
    """A call that records gradients: its forward and backward, the backwards without some of the tangents, the
    gradients of its gradients, the backward as it was recorded, for Dynamo to inline too, its text."""

    split: Split
    partial: PartialBackward
    higher: HigherOrder
    recorded: GraphCall
    inlined: Callable[..., object]
    linked: Linked


def halve(captured: Captured, call: Call, compilers: Compilers, journal: Journal, divide: Divide) -> Halves:
    """The halves of a recorded call, packed by the user's hooks on saved tensors; nothing is built yet."""
    hooks = GraphHooks.now(journal.options.saved_tensors_hooks)
    split = plain = divide(captured, compilers, journal)
    saved = SavedValues.of(plain.forward)
    unpack = None
    if hooks is not None:
        plain = Split(copied(split.forward), split.backward)
        split, made = packed(split, hooks, compilers.decompositions)
        unpack = unpacking_of(plain.forward, split.forward, made, hooks.unpack)
    functional = unwritten(split.backward)
    split = Split(written(split.forward, compilers.write, journal), written(split.backward, compilers.write, journal))

    def build_without(missing: frozenset[Tangent]) -> tuple[Program, GraphCall]:
        partial = without(functional, missing)
        check(partial, journal, "leaving out what has no tangent")
        program = written(partial, compilers.write, journal)
        return program, compilers.backward(program)

    record = recorded_backward(call, compilers, journal, divide, saved, hooks)
    recorded = lazily(record)
    partial = partial_backward(split.forward, split.backward, build_without, recorded)
    roots = roots_of(split.forward, tuple(captured.leaves), call.sizes().values())
    forward = split.forward if hooks is None else plain.forward
    higher = higher_order(roots, partial.results, call, compilers, lambda: forward, journal)
    higher.unpack = unpack
    needs = replace(ambient_needs(call, split.forward.signature), hooks_off=hooks is not None)
    linked = link_differentiable(split, partial, higher, call, needs)
    return Halves(split, partial, higher, recorded, inlined(record), linked)


def graphs_of(halves: Halves, compilers: Compilers) -> dict[str, object]:
    """The graphs of a call that records gradients, built, by the names that its text gives them. Backward is built when
    it is first called."""
    split = halves.split
    forward, backward = compilers.forward(split.forward), lazily(lambda: compilers.backward(split.backward))
    if compilers.keep is not None:
        compilers.keep(halves.linked, {"forward_graph": split.forward, "backward_graph": split.backward})
    return {
        "forward_graph": forward,
        "backward_graph": backward,
        "partial_backward": halves.partial,
        "higher_order": halves.higher,
        "recorded_backward": halves.recorded,
        "inlined_backward": halves.inlined,
    }


def inlined(make: Callable[[], PartialBackward]) -> Callable[..., object]:
    """The backward operator by operator, for Dynamo to inline. It is recorded when Dynamo comes to it."""

    def part_of(given: frozenset[int]) -> tuple[Part, fx.GraphModule]:
        part = make().make(given)
        assert isinstance(part.graph, ByOperators)
        return part, part.graph.module

    return inlined_backward(part_of)


def recorded_backward(
    call: Call,
    compilers: Compilers,
    journal: Journal,
    divide: Divide,
    saved: SavedValues,
    hooks: GraphHooks | None = None,
) -> Callable[[], PartialBackward]:
    """Records the backward operator by operator, for tangents that no kernel takes, as those of a batch are, and for
    whoever records a whole backward. `saved` is what the call's forward saves."""
    ambient = Ambient.now()

    def divided(compilers: Compilers) -> Split:
        return divide(capture(call, compilers.decompositions), compilers, journal)

    def make() -> PartialBackward:
        with _disable_current_modes(), ambient.restored(), transforms_left():
            split = divided(compilers)
            if not saved.are_enough_for(SavedValues.of(split.forward)):  # other sizes stood for the symbols then
                cut = functools.partial(split_at, names=saved.names, known=saved.known())
                split = divided(replace(compilers, partition=cut))
            if not saved.are_enough_for(SavedValues.of(split.forward)):
                raise VerifyError("a backward that is recorded again reads other values than its forward has saved")
            if hooks is not None:
                split, _ = packed(split, hooks, compilers.decompositions)
            split = Split(written(split.forward, compilers.write, journal), split.backward)

        def build(missing: frozenset[Tangent]) -> tuple[Program, GraphCall]:
            with _disable_current_modes():
                program = without(split.backward, missing)
            return program, by_operators(program)

        numbers = saved.numbers if hooks is None else None
        return partial_backward(split.forward, split.backward, build, numbers=numbers)

    return make


def higher_order(
    roots: Roots,
    results: Mapping[int, int],
    call: Call,
    compilers: Compilers,
    forward: Callable[[], Program],
    journal: Journal,
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
            plain, kept = call.without_regions(), kept_by(forward())
            if plain is not call:  # the names of its values are others then, but for its inputs
                kept = {name: kept[name] for name in kept.keys() & {*call.names}}
            captured = capture(plain.at(sizes) if sizes else plain, compilers.decompositions)
            is_drawn = not any(has_symbols(node.meta.get("val")) for node in forward().placeholders)
            steps = [*merged, *(drawn if is_drawn else ())]
            prepare = functools.partial(optimize, passes=steps, journal=journal, name="recorded again")
            if sizes:
                kept = as_recorded(kept, capture(plain, compilers.decompositions), captured, prepare)
            again = gradients_again(captured, path, kept, sizes, is_open=is_open, prepare=prepare)
        program = optimize(again.program, compilers.passes, journal, f"order_{len(path)}")
        recorded = by_operators(copied(program))
        return order_of(forward(), again, compilers.backward(written(program, compilers.write, journal)), recorded)

    return HigherOrder(make, roots, results, check_versions)


@dataclass(frozen=True, slots=True)
class ByOperators:
    """A functional graph, run operator by operator."""

    module: fx.GraphModule

    def __call__(self, args: list[object]) -> Sequence[object]:
        is_recorded = torch._C._len_torch_dispatch_stack() > 0
        returned: Sequence[object] = _Lifting(self.module).run(*args) if is_recorded else self.module(*args)
        return returned


class _Lifting(fx.Interpreter):
    """Runs a graph where it is recorded: its constants become constants of that recording."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return torch.ops.aten.lift_fresh_copy.default(value) if isinstance(value, torch.Tensor) else value


def by_operators(program: Program) -> GraphCall:
    """A functional graph, run operator by operator."""
    return ByOperators(program.module)


def lazily(make: Callable[[], Callable[..., Sequence[object]]]) -> Callable[..., Sequence[object]]:
    """Makes the graph when it is first called: many backwards never run."""
    made: list[Callable[..., Sequence[object]]] = []

    def run(*args: Any) -> Sequence[object]:
        if not made:
            with recording_lock:
                if not made:
                    made.append(make())
        return made[0](*args)

    return run
