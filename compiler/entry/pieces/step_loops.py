"""`StepLoops`: loops whose steps all run in one call, forward and backward.

    h, y = scan(step, h0, xs)    ->    one call that runs step for x in xs, into rows of y

    xs = while_loop(c, f, xs)    ->    one call that runs f while c holds; with gradients it counts the steps first

A loop of another kind, and one whose step is more than kernels of ours, is Python's. What is asked for that one call
cannot give is computed again by Python's loop: gradients of gradients, and those of tangents that no kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from assay.compiler.assembly.step_loops import FLAG, Half, Memory, Shape, Steps, Turns
from assay.compiler.capture.ambient import Ambient, in_forward_mode
from assay.compiler.entry.pieces.piece import MOST_VARIANTS, Arguments, LoopCompiler, flattened
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.step_loop import Row
from assay.compiler.journal import count_loop, count_stepwise
from assay.compiler.runtime.call import in_batch, in_transform, untraced
from assay.compiler.runtime.expected_inputs import is_addressable

Results = tuple[Tensor, ...]
Bodies = tuple[fx.GraphModule, ...]
"""The graphs of a loop: that of its step, behind that of its condition where it has one."""
OURS = (Tensor, torch.nn.Parameter)
CONSTANTS = (int, bool, float, type(None))


@dataclass(slots=True)
class StepLoops:
    """The bodies of loops that were compiled, each for its kinds of arguments. None: its steps are Python's."""

    compile: LoopCompiler | None
    made: dict[object, Any] = field(default_factory=dict)
    counts: dict[Bodies, int] = field(default_factory=dict)
    counted: dict[fx.GraphModule, fx.GraphModule] = field(default_factory=dict)

    def run(
        self, body: fx.GraphModule, shape: Shape, args: Sequence[object], again: Callable[..., Sequence[Any]]
    ) -> Sequence[Any]:
        """What is carried after the last step, and what the steps give, stacked. `again` is Python's loop."""
        steps = self._steps(body, shape, args)
        if steps is None:
            return again(*args)
        tensors = [value for value in args if isinstance(value, Tensor)]
        if not torch.is_grad_enabled() or not any(value.requires_grad for value in tensors):
            return _forward(steps, tensors)[0]
        places = [place for place, value in enumerate(args) if isinstance(value, Tensor)]

        def python_loop(given: Sequence[Tensor]) -> Sequence[Any]:
            values = list(args)
            for place, value in zip(places, given, strict=True):
                values[place] = value
            return again(*values)

        found: Results = _AllSteps.apply(_Loop(steps, python_loop), *tensors)
        return found

    def run_while(
        self,
        condition: fx.GraphModule,
        body: fx.GraphModule,
        carried: int,
        args: Sequence[object],
        again: Callable[..., Sequence[Any]],
    ) -> Sequence[Any]:
        """What is carried after the last step. `again` is Python's loop.

        With gradients the loop runs twice: the first time tells how many steps there are, and the second one is a loop
        of so many, which saves what its backward reads.
        """
        is_recorded = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in args)
        with torch.no_grad() if is_recorded else nullcontext():
            given = [one.detach() if isinstance(one, Tensor) and is_recorded else one for one in args]
            turns = self._turns(condition, body, carried, given)
        if turns is None:
            return again(*args)
        count, found = _turned(turns, carried, [one for one in given if isinstance(one, Tensor)])
        if not is_recorded:
            return found
        if not count:
            return again(*args)
        counted = torch.empty((count, 0))
        shape, steps = Shape(carried, 1), self.counted.setdefault(body, with_row(body, carried))
        rest = (*args[:carried], counted, *args[carried:])
        return self.run(steps, shape, rest, lambda *given: again(*given[:carried], *given[carried + 1 :]))

    def _steps(self, body: fx.GraphModule, shape: Shape, args: Sequence[object]) -> Steps | None:
        def make(compile: LoopCompiler) -> Steps:
            (graph,) = _over_tensors((body,), args)
            graph = with_copies(graph, shape.carried)
            return compile.steps(graph, shape, lambda needed: _examples(shape, args, needed))

        found: Steps | None = self._known((body,), shape, args, make)
        return found

    def _turns(
        self, condition: fx.GraphModule, body: fx.GraphModule, carried: int, args: Sequence[object]
    ) -> Turns | None:
        shape = Shape(carried, 0)

        def make(compile: LoopCompiler) -> Turns:
            first, last = (with_copies(graph, carried) for graph in _over_tensors((condition, body), args))
            return compile.turns(first, last, carried, _examples(shape, args, frozenset()))

        found: Turns | None = self._known((condition, body), shape, args, make)
        return found

    def _known(
        self, bodies: Bodies, shape: Shape, args: Sequence[object], make: Callable[[LoopCompiler], Steps | Turns]
    ) -> Any:
        """What was compiled for arguments of this kind, or is now; None for steps that are Python's."""
        if self.compile is None:
            return None
        if reason := _why_not(shape, args):
            count_stepwise(reason)
            return None
        key = (bodies, shape, Ambient.now(), *(_kind(shape, place, value) for place, value in enumerate(args)))
        if key not in self.made:
            self.counts[bodies] = self.counts.get(bodies, 0) + 1
            self.made[key] = _counted(make, self.compile) if self.counts[bodies] <= MOST_VARIANTS else None
        return self.made[key]


def _counted(make: Callable[[LoopCompiler], Steps | Turns], compile: LoopCompiler) -> Steps | Turns | None:
    try:
        made = make(compile)
    except Unsupported as reason:
        count_stepwise(str(reason))
        return None
    if isinstance(made, Steps) and made.forward.reason:
        count_stepwise(made.forward.reason)
    else:
        count_loop()
    return made


def _over_tensors(bodies: Sequence[fx.GraphModule], args: Sequence[object]) -> list[fx.GraphModule]:
    """The graphs over the tensors among their arguments; the others are constants in them."""
    order = tuple("tensors" if isinstance(value, Tensor) else "constants" for value in args)
    structure = pytree.tree_structure(tuple(0 for _ in args))
    found = []
    for body in bodies:
        tensors = [value for value in args if isinstance(value, Tensor)]
        constants = [value for value in args if not isinstance(value, Tensor)]
        found.append(flattened(body, Arguments(tensors, [], [], constants, [], order), structure))
    return found


def _why_not(shape: Shape, args: Sequence[object]) -> str:
    """Why no single call can run the steps for these arguments; "" if one may."""
    if in_transform() or in_batch() or in_forward_mode():
        return "a transform of torch.func or forward-mode differentiation is entered"
    for place, value in enumerate(args):
        if isinstance(value, Tensor):
            if type(value) not in OURS or value.layout is not torch.strided or not is_addressable(value):
                return "an argument is more than its numbers in memory"
            if value.device.type != "cpu" or value.is_conj() or value.is_neg():
                return "an argument is on another device, or is to be conjugated yet"
            if place < shape.carried and not value.is_contiguous():
                return "what is carried does not lie in rows"
            if torch.is_grad_enabled() and value.is_inference():
                return "an argument was made in inference mode"
        elif type(value) not in CONSTANTS or place < shape.carried + shape.rows:
            return "an argument is neither a tensor nor a number"
    return ""


def _kind(shape: Shape, place: int, value: object) -> object:
    """What of an argument the compile is for: of rows each one, so that their number may be any."""
    if not isinstance(value, Tensor):
        return type(value), repr(value)  # which tells zeros of either sign apart, and finds NaN again
    start = shape.carried <= place < shape.carried + shape.rows
    return value.dtype, value.shape[start:], value.stride()[start:], value.requires_grad


def _examples(shape: Shape, args: Sequence[object], needed: frozenset[int]) -> list[Tensor]:
    """Arguments of one step."""
    made = []
    for place, value in enumerate(args):
        if isinstance(value, Tensor):
            start = shape.carried <= place < shape.carried + shape.rows
            example = torch.empty_strided(value.shape[start:], value.stride()[start:], dtype=value.dtype)
            made.append(example.requires_grad_(value.requires_grad or place in needed))
    return made


def with_row(body: fx.GraphModule, place: int) -> fx.GraphModule:
    """The graph with one more argument at a place, which nothing reads: a row of which there is one a step."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    placeholders = body.graph.find_nodes(op="placeholder")
    for index, node in enumerate(placeholders):
        if index == place:
            graph.placeholder("counted_step")
        copies[node] = graph.node_copy(node)
    if place == len(placeholders):
        graph.placeholder("counted_step")
    for node in body.graph.nodes:
        if node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(body, graph)


def with_copies(gm: fx.GraphModule, carried: int) -> fx.GraphModule:
    """The graph, all of whose results are new tensors. Raises: Unsupported for results that are not all tensors."""
    (output,) = gm.graph.find_nodes(op="output")
    results = (output.args[0],) if isinstance(output.args[0], fx.Node) else output.args[0]
    if not isinstance(results, (tuple, list)) or not all(isinstance(result, fx.Node) for result in results):
        raise Unsupported("a step returns more than tensors")
    with gm.graph.inserting_before(output):
        copies = []
        for place, result in enumerate(results):
            layout = torch.preserve_format if place < carried else torch.contiguous_format
            copies.append(gm.graph.call_function(torch.clone, (result,), {"memory_format": layout}))
    output.args = (tuple(copies),)
    return fx.GraphModule(gm, gm.graph)


@torch.no_grad()
def _forward(steps: Steps, args: Sequence[Tensor]) -> tuple[Results, dict[Memory, Tensor]]:
    """The results of all steps, and the memory of the loop."""
    shape = steps.shape
    length = args[shape.carried].shape[0]
    memory: dict[Memory, Tensor] = {}
    for place, value in enumerate(args):
        at, _ = shape.input(place)
        memory[at] = value
        if place < shape.carried:
            memory[at] = value.new_empty((length + 1 if at in steps.saved else 2, *value.shape))
            memory[at][0].copy_(value)
    for at, made in steps.forward.makes.items():
        if at not in memory:
            memory[at] = made.empty(length)
    steps.forward.run(range(length), memory)
    rings = [memory[Memory("carried", place)] for place in range(shape.carried)]
    last = [ring[length % len(ring)].clone() for ring in rings]
    stacks = {at.of: stack for at, stack in memory.items() if at.use == "result"}
    return (*last, *(stacks[place] for place in sorted(stacks, key=int))), memory


@torch.no_grad()
def _turned(turns: Turns, carried: int, args: Sequence[Tensor]) -> tuple[int, Results]:
    """How many steps a loop has whose end is data, and what is carried after the last one."""
    memory: dict[Memory, Tensor] = {FLAG: torch.empty((), dtype=torch.bool)}
    for place, value in enumerate(args):
        at, _ = Shape(carried, 0).input(place)
        memory[at] = value
        if place < carried:
            memory[at] = value.new_empty((2, *value.shape))
            memory[at][0].copy_(value)
    count = turns.run(memory)
    return count, tuple(memory[Memory("carried", place)][count % 2].clone() for place in range(carried))


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop as its autograd node knows it: `again` is Python's loop over the same arguments."""

    steps: Steps
    again: Callable[[Sequence[Tensor]], Sequence[Any]]


class _AllSteps(torch.autograd.Function):
    """All steps as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, loop: _Loop, *args: Tensor) -> Results:
        results, memory = _forward(loop.steps, args)
        kept = sorted(loop.steps.saved, key=str)
        ctx.save_for_backward(*(memory[at] for at in kept))
        ctx.loop, ctx.kept, ctx.args = loop, kept, args
        ctx.versions = [value._version for value in args]
        ctx.length = args[loop.steps.shape.carried].shape[0]
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @untraced
    def backward(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        given = {place: tangents[place] for place in sorted(ctx.loop.steps.differentiable)}
        if torch.is_grad_enabled() or in_transform() or in_batch() or not all(map(_is_read, given.values())):
            return None, *_again(ctx, tangents)
        memory = dict(zip(ctx.kept, ctx.saved_tensors, strict=True))
        run = _Backward(ctx.loop.steps, ctx.length, memory, given)
        run.all_steps()
        return None, *(run.gradient(place, value) for place, value in enumerate(ctx.args))


def _is_read(tangent: Tensor | None) -> bool:
    """Whether kernels can read a gradient."""
    if tangent is None:
        return True
    is_plain = type(tangent) in OURS and tangent.layout is torch.strided and is_addressable(tangent)
    return is_plain and not tangent.is_conj() and not tangent.is_neg()


def _again(ctx: Any, tangents: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the arguments by Python's loop, which runs again."""
    if ctx.versions != [value._version for value in ctx.args]:
        raise RuntimeError("an argument of a loop was written in place, and its gradients need it as it was")
    creates_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        args = [value.view_as(value) if value.requires_grad else value for value in ctx.args]
        results = ctx.loop.again(args)
        flowing = {result: tangent for result, tangent in zip(results, tangents, strict=True) if tangent is not None}
        wanted = [value for value in args if value.requires_grad]
        found = torch.autograd.grad(list(flowing), wanted, list(flowing.values()), create_graph=creates_graph)
    gradients = iter(found)
    return [next(gradients) if value.requires_grad else None for value in args]


@dataclass(slots=True)
class _Backward:
    """The backward of all steps, from the last one to the first. Steps that miss the gradients of other results run by
    another loop: those of what is carried, once no step before gives them.

    `at` is how many steps are left.
    """

    steps: Steps
    length: int
    memory: dict[Memory, Tensor]
    tangents: dict[int, Tensor | None]
    at: int = 0
    begun: set[Memory] = field(default_factory=set)
    last: Half | None = None

    def all_steps(self) -> None:
        self.at = self.length
        carried = self.steps.shape.carried
        for place, tangent in self.tangents.items():
            at = Memory("tangent", place)
            if tangent is not None and place < carried:
                self.memory[at] = tangent.new_empty((2, *tangent.shape))
                self.memory[at][self.length % 2].copy_(tangent)
            elif tangent is not None:
                self.memory[at] = tangent.contiguous()
        missing = frozenset(place for place, tangent in self.tangents.items() if tangent is None)
        while self.at and len(missing) < len(self.tangents):
            missing = self._run(missing)
        self._zero_rows(self.begun, 0, self.at)

    def _run(self, missing: frozenset[int]) -> frozenset[int]:
        """Runs the next step, and all before it that miss the same. Returns what the step before these misses."""
        half = self.last = self.steps.backward(missing)
        before = frozenset(place for place in self.tangents if not self._is_given(half, place))
        stop = 0 if before == missing else self.at - 1
        new = half.makes.keys() - self.memory.keys()
        self.memory.update({at: half.makes[at].empty(self.length) for at in new})
        half.run(range(self.at - 1, stop - 1, -1), self.memory, self.begun)
        self._zero_rows({at for at in new if at.use == "gradient"}, self.at, self.length)
        self._zero_rows(self.begun - half.makes.keys(), stop, self.at)
        self.begun |= {at for at in half.makes if at.use == "gradient"}
        self.at = stop
        return before

    def _is_given(self, half: Half, place: int) -> bool:
        """Whether the step before those of a half is given the gradient of a result."""
        if place >= self.steps.shape.carried:
            return self.tangents[place] is not None
        return Memory("tangent", place) in half.makes

    def _zero_rows(self, stacks: set[Memory], start: int, stop: int) -> None:
        """No gradient flows to these rows."""
        for at in stacks:
            if isinstance(self.steps.shape.gradient(int(at.of))[1], Row):
                self.memory[at][start:stop].zero_()

    def gradient(self, place: int, value: Tensor) -> Tensor | None:
        """The gradient of an argument: of zeros where none flows to one that requires grad, as in eager."""
        at, _ = self.steps.shape.gradient(place)
        if at in self.begun:
            return self.memory[at]
        is_carried = place < self.steps.shape.carried and not self.at
        if is_carried and self.last is not None and at in self.last.makes:
            return self.memory[at][0].clone()
        return torch.zeros_like(value) if value.requires_grad else None
