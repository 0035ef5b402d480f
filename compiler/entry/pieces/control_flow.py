"""Loops and branches of a graph, run as Python runs them, over bodies that are compiled.

    cond(p, f, g, xs)          f(*xs) if p else g(*xs)
    while_loop(c, f, xs)       while c(*xs): xs = f(*xs)
    scan, map                  for x in xs.unbind(0): ...; stacked. In one call where that can be

Each body is a piece, compiled when it is first called. Autograd records the calls of pieces one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._C._functorch import _add_batch_dim, get_unwrapped, is_batchedtensor, maybe_get_bdim, maybe_get_level

from assay.compiler.assembly.step_loops import Shape
from assay.compiler.entry.graph_as_call import in_eager
from assay.compiler.entry.pieces.piece import Compile, Piece, PieceCompiler
from assay.compiler.entry.pieces.step_loops import StepLoops

COND = torch.ops.higher_order.cond
WHILE_LOOP = torch.ops.higher_order.while_loop
SCAN = torch.ops.higher_order.scan
MAP = torch.ops.higher_order.map_impl

Body = Callable[..., Sequence[Any]]


@dataclass(slots=True)
class ControlFlow:
    """A part of a graph with loops or branches, as it is called. `bodies` are the pieces made so far."""

    module: fx.GraphModule
    compile: Compile
    bodies: dict[object, Piece] = field(default_factory=dict)
    loops: StepLoops = field(init=False)

    def __post_init__(self) -> None:
        self.loops = StepLoops(self.compile.loops if isinstance(self.compile, PieceCompiler) else None)

    def __call__(self, *args: object) -> Any:
        return _Interpreter(self.module, self).run(*args)

    def body(self, graph: fx.GraphModule, tied: tuple[int, ...] = ()) -> Body:
        """A function of the graph's, compiled; each result depends on the tied arguments, with gradients of zeros."""
        key = (graph, tied)
        if key not in self.bodies:
            module = with_ties(graph, tied) if tied else graph
            self.bodies[key] = Piece(module, self.compile, in_eager(module))
        return self.bodies[key]

    def cond(self, predicate: Any, first: fx.GraphModule, second: fx.GraphModule, operands: Sequence[Any]) -> Any:
        """The branch that is taken. An operand that the other alone reads has a gradient of zeros."""
        taken, other = (first, second) if predicate else (second, first)
        tied: tuple[int, ...] = ()
        if torch.is_grad_enabled():
            tied = tuple(
                place
                for place, operand in enumerate(operands)
                if isinstance(operand, torch.Tensor) and operand.requires_grad
                and _reads(other, place) and not _reads(taken, place)
            )  # fmt: skip
        return self.body(taken, tied)(*operands)

    def while_loop(
        self,
        condition: fx.GraphModule,
        body: fx.GraphModule,
        carried: Sequence[Any],
        more: Sequence[Any] = (),
    ) -> Any:
        """What the last step gives; copies of what is carried, where there is none."""
        return self.loops.run_while(
            condition, body, len(carried), (*carried, *more),
            lambda *args: self.turns_of_python(condition, body, len(carried), args),
        )  # fmt: skip

    def turns_of_python(
        self, condition: fx.GraphModule, body: fx.GraphModule, carried: int, args: Sequence[Any]
    ) -> Sequence[Any]:
        """The steps of a loop whose end is data, one call each."""
        goes_on, step = self.body(condition), self.body(body)
        values, more, steps = tuple(args[:carried]), tuple(args[carried:]), 0
        while _single(goes_on(*values, *more)):
            values, steps = tuple(step(*values, *more)), steps + 1
        if steps:
            return values
        return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in values)

    def scan(
        self, combine: fx.GraphModule, init: Sequence[Any], xs: Sequence[torch.Tensor], more: Sequence[Any] = ()
    ) -> Any:
        """What is carried after the last step, then what the steps give beside it, stacked."""
        shape = Shape(len(init), len(xs))
        return self.loops.run(
            combine, shape, (*init, *xs, *more), lambda *args: self.steps_of_python(combine, shape, args)
        )

    def map(self, body: fx.GraphModule, xs: Sequence[torch.Tensor], more: Sequence[Any]) -> Any:
        """What the steps give, stacked."""
        return self.scan(body, (), xs, more)

    def steps_of_python(self, body: fx.GraphModule, shape: Shape, args: Sequence[Any]) -> Sequence[Any]:
        """The steps of a scan, one call each. All results need gradients where an argument does, as in eager."""
        end = shape.carried + shape.rows
        step, carried, given = self.body(body), tuple(args[: shape.carried]), []
        for items in zip(*(x.unbind(0) for x in args[shape.carried : end]), strict=True):
            results = tuple(step(*carried, *items, *args[end:]))
            carried = results[: len(carried)]
            given.append(results[len(carried) :])
        stack = _stacked if carried else torch.stack
        results = (*map(_batch_innermost, carried), *map(stack, zip(*given, strict=True)))
        if not has_gradients(args):
            return results
        needed = [value for value in args if isinstance(value, torch.Tensor) and value.requires_grad]
        return tuple(_tied(result, *map(_nothing_of, needed)) for result in results)


class _Interpreter(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, flow: ControlFlow) -> None:
        super().__init__(gm)
        self._flow = flow

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_controlled(target, args):
            return CONTROLLED[target](self._flow, *args, **kwargs)
        return super().call_function(target, args, kwargs)


CONTROLLED: dict[object, Callable[..., Any]] = {
    COND: ControlFlow.cond,
    WHILE_LOOP: ControlFlow.while_loop,
    SCAN: ControlFlow.scan,
    MAP: ControlFlow.map,
}


def _stacked(steps: Sequence[torch.Tensor]) -> torch.Tensor:
    """What the steps of a scan give, stacked. A dimension of vmap lies innermost, as torch's own scan lays it."""
    if not all(map(is_batchedtensor, steps)):
        return torch.stack(tuple(steps))
    level = maybe_get_level(steps[0])
    inner = [get_unwrapped(step).movedim(maybe_get_bdim(step), -1) for step in steps]
    return _add_batch_dim(_stacked(inner), inner[0].dim(), level)


def _batch_innermost(value: Any) -> Any:
    """The value, as a view in which a dimension of vmap is the last one."""
    if not isinstance(value, torch.Tensor) or not is_batchedtensor(value):
        return value
    inner = _batch_innermost(get_unwrapped(value).movedim(maybe_get_bdim(value), -1))
    return _add_batch_dim(inner, inner.dim() - 1, maybe_get_level(value))


def is_controlled(target: object, args: Sequence[Any]) -> bool:
    """Whether a call is run here: a loop over the rows of nothing is left to torch, which alone knows its results."""
    if target not in CONTROLLED:
        return False
    return target not in (SCAN, MAP) or bool(args[2 if target is SCAN else 1][0].shape[0])


def controlled_nodes(gm: fx.GraphModule) -> list[fx.Node]:
    """The loops and branches of a graph."""
    return [node for node in gm.graph.nodes if node.op == "call_function" and node.target in CONTROLLED]


def has_gradients(args: Sequence[Any]) -> bool:
    """Whether gradients are recorded for some of these arguments."""
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def _reads(graph: fx.GraphModule, place: int) -> bool:
    return bool(graph.graph.find_nodes(op="placeholder")[place].users)


def _single(results: Any) -> bool:
    (found,) = results if isinstance(results, (tuple, list)) else (results,)
    return bool(found)


def with_ties(gm: fx.GraphModule, places: tuple[int, ...]) -> fx.GraphModule:
    """The graph with results of floating point that also depend on these arguments: `r - x.flatten()[:0].sum()`, which
    is r to the last bit."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    taken = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        nothing = [graph.call_function(_nothing_of, (taken[place],)) for place in places]
        output.args = (fx.node.map_arg(output.args[0], lambda node: graph.call_function(_tied, (node, *nothing))),)
    return fx.GraphModule(gm, graph)


def _nothing_of(value: torch.Tensor) -> torch.Tensor:
    """A zero that depends on a tensor."""
    return (value.abs() if value.is_complex() else value).flatten()[:0].sum()


def _tied(result: Any, *zeros: torch.Tensor) -> Any:
    if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
        return result
    for zero in zeros:
        result = result - zero.to(result.dtype)
    return result
