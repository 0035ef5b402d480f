"""`steps_of`: a recorded step as loops over all steps, one for forward and one for backward.

    def step(h, x, w): h = tanh(h * w + x); return h, h * 2

    forward     for t in 0, 1, ...:   h[t + 1], y[t] = step(h[t], x[t], w)
    backward    for t in ..., 1, 0:   dh[t], dx[t], dw += step_backward(h[t + 1], w, dh[t + 1], dy[t])

What is carried lies in two rows that take turns, or in one row a step where backward reads it. Whatever backward reads
of a step is a row of a stack.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import Divide
from assay.compiler.autograd.missing_tangents import copied, unwritten, without
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.calls import called
from assay.compiler.ir.graph.captured import Captured
from assay.compiler.ir.graph.roles import (
    Buffer,
    Freed,
    Gradient,
    GraphCall,
    Inference,
    InputRole,
    OutputRole,
    Parameter,
    Program,
    Saved,
    Signature,
    Tangent,
    UserInput,
    UserOutput,
)
from assay.compiler.ir.graph.trace import gives_memory_on, has_effect, is_random
from assay.compiler.ir.loops.kernel import Schedule
from assay.compiler.ir.loops.step_loop import Fixed, Place, Row, StepLoop, Total, Turn, check_steps
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.journal import Journal
from assay.compiler.passes.runner import optimize, written
from assay.compiler.runtime.host_steps import HostSteps
from assay.compiler.toolchain.step_loops import LoadedSteps, LoadedWhile, load_step_loop, load_while

clone = torch.ops.aten.clone.default
Places: TypeAlias = Mapping[InputRole | OutputRole, tuple["Memory", Place]]
Plan: TypeAlias = Callable[[Program], Schedule]
"""Makes the schedule of a program."""


class Memory(NamedTuple):
    """A tensor of a loop: what it is for, and the argument or result of the step, or the saved value."""

    use: str
    of: int | str


@dataclass(frozen=True, slots=True)
class Shape:
    """What the arguments of a step are: so many that are carried, then so many that are rows; the rest stay the same.
    Its results are what is carried on, and then what is stacked."""

    carried: int
    rows: int

    def input(self, index: int) -> tuple[Memory, Place]:
        """Where an argument lies."""
        if index < self.carried:
            return Memory("carried", index), Turn(0)
        return Memory("input", index), Row() if index < self.carried + self.rows else Fixed()

    def output(self, index: int) -> tuple[Memory, Place]:
        """Where a result lies."""
        if index < self.carried:
            return Memory("carried", index), Turn(1)
        return Memory("result", index), Row()

    def tangent(self, index: int) -> tuple[Memory, Place]:
        """Where the gradient of a result lies."""
        return Memory("tangent", index), Turn(1) if index < self.carried else Row()

    def gradient(self, index: int) -> tuple[Memory, Place]:
        """Where the gradient of an argument lies."""
        if index < self.carried:
            return Memory("tangent", index), Turn(0)
        return Memory("gradient", index), Row() if index < self.carried + self.rows else Total()


@dataclass(frozen=True, slots=True)
class Made:
    """What a step makes, and where."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    place: Place

    @staticmethod
    def of(value: torch.Tensor, place: Place) -> Made:
        """Raises: Unsupported for a size that is a symbol."""
        if has_symbols(value):
            raise Unsupported("a size in a step is a symbol")
        return Made(tuple(value.shape), value.stride(), value.dtype, place)

    def empty(self, length: int) -> torch.Tensor:
        """Memory for so many steps."""
        item = torch.empty_strided(self.size, self.strides, dtype=self.dtype, device="meta")
        if isinstance(self.place, Total):
            return torch.empty_strided(self.size, self.strides, dtype=self.dtype)
        count = 2 if isinstance(self.place, Turn) else length
        if item.is_contiguous():
            return torch.empty((count, *self.size), dtype=self.dtype)
        last = sum((size - 1) * stride for size, stride in zip(self.size, self.strides, strict=True))
        return torch.empty_strided((count, *self.size), (last + 1, *self.strides), dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class Half:
    """A loop that runs: the memory of each of its places by name, and what it makes. `reason` is why its steps are not
    one call; "" where they are."""

    steps: LoadedSteps | HostSteps
    memory: Mapping[str, Memory]
    makes: Mapping[Memory, Made]
    reason: str = ""

    def run(self, steps: range, given: Mapping[Memory, torch.Tensor], begun: Container[Memory] = ()) -> None:
        """Runs steps over what is given; the sums that have `begun` go on."""
        names = {name for name, memory in self.memory.items() if memory in begun}
        self.steps.run(steps, {name: given[memory] for name, memory in self.memory.items()}, names)


@dataclass(slots=True)
class Steps:
    """A step as loops. `saved` is the memory that backward reads of forward; `differentiable` are the results through
    which gradients flow. `make_backward` builds the backward without the gradients of some results."""

    shape: Shape
    forward: Half
    differentiable: frozenset[int] = frozenset()
    saved: frozenset[Memory] = frozenset()
    make_backward: Callable[[frozenset[int]], Half] | None = None
    backwards: dict[frozenset[int], Half] = field(default_factory=dict)

    def backward(self, missing: frozenset[int]) -> Half:
        """The backward for steps some of whose results have no gradients."""
        if missing not in self.backwards:
            assert self.make_backward is not None
            with _disable_current_modes():
                self.backwards[missing] = self.make_backward(missing)
        return self.backwards[missing]


@dataclass(frozen=True, slots=True)
class Builder:
    """What makes loops of the programs of a step."""

    shape: Shape
    compilers: Compilers
    journal: Journal
    plan: Plan
    graph: Callable[[Program], GraphCall]

    def half(self, program: Program, places: Places) -> Half:
        """The loop of a program each of whose results is its own. Raises: Unsupported."""
        program = written(program, self.compilers.write, self.journal)
        _check_nodes(program)
        named = _named(program)
        memory = {node.name: places[role][0] for node, role in named}
        at = {node.name: places[role][1] for node, role in named}
        made = {memory[node.name]: Made.of(node.meta["val"], at[node.name]) for _, node in _returned(program)}
        try:
            return Half(load_step_loop(self.loop("all_steps", program, places), self.journal.options), memory, made)
        except Unsupported as reason:
            takes = {node.name: at[node.name] for node in program.placeholders}
            gives = {node.name: at[node.name] for _, node in _returned(program)}
            return Half(HostSteps(self.graph(program), takes, gives), memory, made, str(reason))

    def loop(self, name: str, program: Program, places: Places) -> StepLoop:
        """The launches of a step. Raises: Unsupported for steps that are more than launches of kernels."""
        schedule = self.plan(program)
        check_steps(schedule)
        if schedule.constants:
            raise Unsupported("a step reads a constant tensor")
        self.journal.count(schedule.counts, len(schedule.kernels))
        self.journal.kernels(schedule)
        dtypes = {node.name: node.meta["val"].dtype for node in program.placeholders}
        return StepLoop(name, schedule, {node.name: places[role][1] for node, role in _named(program)}, dtypes)


def _named(program: Program) -> list[tuple[fx.Node, InputRole | OutputRole]]:
    """What a program takes and gives, with its roles."""
    given = [(node, role) for role, node in _returned(program)]
    return [*zip(program.placeholders, program.signature.inputs, strict=True), *given]


@dataclass(frozen=True, slots=True)
class Turns:
    """A loop whose end is data: `memory` is that of each place of the condition, and of the step."""

    steps: LoadedWhile
    memory: tuple[Mapping[str, Memory], Mapping[str, Memory]]

    def run(self, given: Mapping[Memory, torch.Tensor]) -> int:
        """Runs all steps; returns how many there were."""
        first, last = ({name: given[at] for name, at in memory.items()} for memory in self.memory)
        return self.steps.run(first, last)


FLAG = Memory("result", 0)
"""Where the condition of a loop is found to hold."""


def turns_of(condition: Call, body: Call, builder: Builder) -> Turns:
    """A loop whose end is data, with no gradients. Raises: Unsupported as `steps_of` does."""
    (first, of_condition), (last, of_body) = (
        _turned(name, call, builder) for name, call in (("condition", condition), ("body", body))
    )
    flag = next(name for name, at in of_condition.items() if at == FLAG)
    return Turns(load_while(first, last, flag, builder.journal.options), (of_condition, of_body))


def _turned(name: str, call: Call, builder: Builder) -> tuple[StepLoop, Mapping[str, Memory]]:
    """The loop of a condition or of a step, and the memory of each of its places."""
    captured = capture(call, builder.compilers.decompositions)
    _check(captured.signature)
    program = optimize(captured.finish(), builder.compilers.passes, builder.journal, "captured")
    program = written(with_own_results(program)[0], builder.compilers.write, builder.journal)
    _check_nodes(program)
    places: dict[InputRole | OutputRole, tuple[Memory, Place]] = {}
    for taken in program.signature.inputs:
        places[taken] = builder.shape.input(_index_of(taken))
    for role in program.signature.outputs:
        places[role] = (FLAG, Fixed()) if name == "condition" else builder.shape.output(_index_of(role))
    named = {node.name: places[role][0] for node, role in _named(program)}
    return builder.loop(name, program, places), named


def steps_of(make_call: Callable[[frozenset[int]], Call], builder: Builder, divide: Divide) -> Steps:
    """The loops of a step. `make_call` makes the call to record, in which these of the carried arguments need gradients
    that need none before the first step.

    Raises: Unsupported for a step that is more than launches of kernels of known sizes.
    """
    captured = _recorded(make_call, builder)
    if not captured.needs_gradient:
        program = optimize(captured.finish(), builder.compilers.passes, builder.journal, "captured")
        return Steps(builder.shape, _forward(program, builder)[0])
    split = divide(captured, builder.compilers, builder.journal)
    forward, same = _forward(split.forward, builder)
    backward = unwritten(split.backward)
    places = _backward_places(backward.signature, same, builder.shape)
    saved = frozenset(places[role][0] for role in backward.signature.inputs if isinstance(role, Saved))

    def make_backward(missing: frozenset[int]) -> Half:
        tangents = [role for role in backward.signature.inputs if isinstance(role, Tangent)]
        left_out = [role for role in tangents if _index_of(role.of) in missing]
        program, _ = with_own_results(without(backward, left_out))
        return builder.half(program, places)

    roles = split.forward.signature.differentiable
    return Steps(builder.shape, forward, frozenset(map(_index_of, roles)), saved, make_backward)


def _recorded(make_call: Callable[[frozenset[int]], Call], builder: Builder) -> Captured:
    """The step, recorded with gradients for all carried values through which they flow after some step."""
    needed: frozenset[int] = frozenset()
    while True:
        captured = capture(make_call(needed), builder.compilers.decompositions)
        _check(captured.signature)
        flowing = {_index_of(role) for role in captured.signature.differentiable}
        more = frozenset(index for index in flowing if index < builder.shape.carried) - needed
        if not more:
            return captured
        needed |= more


def _check(signature: Signature) -> None:
    """Raises: Unsupported for a step that does more than return new tensors."""
    others: list[object] = [role for role in (*signature.inputs, *signature.outputs) if not isinstance(role, _PLAIN)]
    others += [effect for effect in signature.effects if not isinstance(effect, (Freed, Inference))]
    results = [result for result in signature.results if isinstance(result, UserOutput)]
    others += [result for result in signature.results if not isinstance(result, UserOutput)]
    if others:
        raise Unsupported(f"a step has an effect, or returns what it was given: {type(others[0]).__name__}")
    if [result.index for result in results] != list(range(len(results))):
        raise Unsupported("a step returns one tensor twice")


_PLAIN = (UserInput, Parameter, Buffer, UserOutput)


def _forward(program: Program, builder: Builder) -> tuple[Half, Mapping[OutputRole, tuple[Memory, Place]]]:
    """The loop of a forward, and where each value lies that it saves."""
    shape = builder.shape
    for result, node in _returned(program):
        if isinstance(result, UserOutput) and result.index < shape.carried and not node.meta["val"].is_contiguous():
            raise Unsupported("what a step carries on lies not in rows")
    own, same = with_own_results(program)
    places: dict[InputRole | OutputRole, tuple[Memory, Place]] = {}
    for taken in program.signature.inputs:
        places[taken] = shape.input(_index_of(taken))
    for role in program.signature.outputs:
        places[role] = (Memory("saved", role.of), Row()) if isinstance(role, Saved) else shape.output(_index_of(role))
    places.update({role: places[other] for role, other in same.items()})
    half = builder.half(own, places)
    return half, {role: places[role] for role in program.signature.outputs if isinstance(role, Saved)}


def _backward_places(signature: Signature, saved: Mapping[OutputRole, tuple[Memory, Place]], shape: Shape) -> Places:
    """Where each argument and result of a backward lies."""
    places: dict[InputRole | OutputRole, tuple[Memory, Place]] = {}
    for taken in signature.inputs:
        places[taken] = saved[taken] if isinstance(taken, Saved) else shape.tangent(_index_of(_result_of(taken)))
    for role in signature.outputs:
        places[role] = shape.gradient(_index_of(_argument_of(role)))
    return places


def _result_of(role: InputRole) -> OutputRole:
    if not isinstance(role, Tangent):
        raise Unsupported(f"the backward of a step takes more than gradients: {type(role).__name__}")
    return role.of


def _argument_of(role: OutputRole) -> object:
    if not isinstance(role, Gradient):
        raise Unsupported(f"the backward of a step gives more than gradients: {type(role).__name__}")
    return role.of


def _index_of(role: object) -> int:
    if not isinstance(role, _PLAIN):
        raise Unsupported(f"a step takes or gives more than tensors: {type(role).__name__}")
    return role.index


def _check_nodes(program: Program) -> None:
    """Raises: Unsupported for a step that draws random numbers, or does more than compute."""
    for node in program.module.graph.nodes:
        if node.op == "call_function" and (is_random(node) or has_effect(node)):
            raise Unsupported(f"a step calls {node.target}, which does more than compute")


def with_own_results(program: Program) -> tuple[Program, Mapping[OutputRole, InputRole | OutputRole]]:
    """The program, each of whose results lies in rows in memory of its own; and for each value that it saves, and has
    as an argument or result anyway, that one. Results that are None are left out."""
    program = copied(program)
    owners: dict[fx.Node, InputRole | OutputRole] = dict(
        zip(program.placeholders, program.signature.inputs, strict=True)
    )
    same: dict[OutputRole, InputRole | OutputRole] = {}
    results: dict[OutputRole, fx.Node] = {}
    output = next(iter(reversed(program.module.graph.nodes)))
    for role, node in _returned(program):
        if isinstance(role, Saved) and node in owners:
            same[role] = owners[node]
            continue
        with program.module.graph.inserting_before(output):
            results[role] = made = _own(node, owners, isinstance(role, Saved))
        owners[made] = role
    output.args = (list(results.values()),)
    return Program(program.module, replace(program.signature, outputs=tuple(results))), same


def _returned(program: Program) -> Iterator[tuple[OutputRole, fx.Node]]:
    for role, node in zip(program.signature.outputs, program.returned, strict=True):
        if isinstance(node, int):
            raise Unsupported("a step saves a number")
        if node is not None:
            yield role, node


def _own(node: fx.Node, owners: Mapping[fx.Node, object], any_layout: bool) -> fx.Node:
    """The node, or a copy of it, that is nobody else's."""
    source = node.args[0] if node.target is clone else None
    if isinstance(source, fx.Node) and _is_own(source, owners, any_layout):
        return source
    if _is_own(node, owners, any_layout):
        return node
    layout = torch.preserve_format if any_layout else torch.contiguous_format
    made = called(clone, node, memory_format=layout)
    if any_layout and made.meta["val"].stride() != node.meta["val"].stride():
        raise Unsupported("a step saves a tensor with gaps")
    return made


def _is_own(node: fx.Node, owners: Mapping[fx.Node, object], any_layout: bool) -> bool:
    call = node.args[0] if node.target is operator.getitem else node
    is_made = node.op == "call_function" and isinstance(call, fx.Node) and not gives_memory_on(call)
    return is_made and node not in owners and (any_layout or node.meta["val"].is_contiguous())
