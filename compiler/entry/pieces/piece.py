"""`Piece`: a compiled part of a graph. It is compiled when it is called, for arguments of one kind.

first kind      every size and integer is a constant, but for those that the whole graph knew only as symbols
another kind    what differs is symbolic
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from assay.compiler.assembly.step_loops import Shape, Steps, Turns
from assay.compiler.capture.ambient import Ambient
from assay.compiler.capture.inputs import why_not_read
from assay.compiler.capture.user_code.script_objects import is_object, kind_of_object
from assay.compiler.entry.pieces.parts import is_switch
from assay.compiler.entry.pieces.unseen_writes import may_write
from assay.compiler.entry.straight_call import MISS, STRAIGHT_CALLS, StraightCall, straight_call
from assay.compiler.fallback import GivenBack, nodes_of
from assay.compiler.ir.tensors.changing_sizes import Examples, Kind, Moving, alone, as_data
from assay.compiler.ir.tensors.layout.overlap import is_leaf
from assay.compiler.runtime.call import in_transform

MOST_VARIANTS = 8
"""For how many kinds of arguments one piece is compiled; for others it runs in eager."""

Compile = Callable[[fx.GraphModule, Sequence[object]], Callable[..., Any]]
CompileSteps = Callable[[fx.GraphModule, Shape, Callable[[frozenset[int]], Sequence[object]]], Steps]
"""Compiles the body of a loop, for examples in which these of the carried arguments require grad."""
CompileTurns = Callable[[fx.GraphModule, fx.GraphModule, int, Sequence[object]], Turns]
"""Compiles the condition and the body of a loop, of whose arguments so many are carried."""


class LoopCompiler(NamedTuple):
    """What compiles all steps of a loop as one call: of one over rows, and of one whose end is data."""

    steps: CompileSteps
    turns: CompileTurns


@dataclass(frozen=True, slots=True)
class PieceCompiler:
    """What compiles the pieces of a graph, and its loops. None: the steps of each loop are calls of their own."""

    piece: Compile
    loops: LoopCompiler | None = None

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
        return self.piece(gm, example_inputs)


class Arguments(NamedTuple):
    """The arguments of a call by what they are: tensors, integers, numbers that the graph reads as data, constants, and
    objects that operators take."""

    tensors: list[torch.Tensor]
    integers: list[int]
    floats: list[float]
    constants: list[object]
    objects: list[object]
    order: tuple[str, ...]

    @staticmethod
    def of(values: Sequence[object]) -> Arguments:
        found = Arguments([], [], [], [], [], tuple(map(_sort, values)))
        for sort, value in zip(found.order, values, strict=True):
            getattr(found, sort).append(value)
        return found

    def without_history(self) -> Arguments:
        """The same arguments, each tensor that autograd refuses to look at as one that it knows nothing of."""
        known = [value if is_leaf(value) is not None else alone(value) for value in self.tensors]
        return self._replace(tensors=known)

    def read_by_kernels(self) -> list[object]:
        """The arguments of what is compiled: all but the constants, floats as tensors."""
        numbers = [as_data(value) for value in self.floats]
        sources: dict[str, Iterator[object]] = {"tensors": iter(self.tensors), "integers": iter(self.integers)}
        sources |= {"floats": iter(numbers), "objects": iter(self.objects)}
        return [next(sources[sort]) for sort in self.order if sort in sources]


def _sort(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "tensors"
    return "objects" if is_object(value) else {int: "integers", float: "floats"}.get(type(value), "constants")


@dataclass(slots=True)
class Variant:
    """A piece for one kind of arguments. `run` is None where it runs in eager, for the `reason`.

    `holds` says whether it serves others of other sizes; None: it does not.
    """

    fixed: object
    kind: Kind
    run: Callable[..., Sequence[Any]] | None
    holds: Callable[[Sequence[Any], Sequence[float]], bool] | None = None
    reason: str = "a piece of its graph has been compiled for too many kinds of arguments"

    def serves(self, fixed: object, kind: Kind, given: Arguments) -> bool:
        if self.fixed != fixed:
            return False
        if self.holds is None:
            return self.kind == kind
        return self.kind.is_alike(kind) and self.holds(given.tensors, given.integers)


def _in_level() -> str:
    """Why nothing is recorded where a level of `torch.func` is entered, as around a branch; "" outside of one."""
    return "a piece of its graph is called in a level of torch.func" if in_transform() else ""


@dataclass(slots=True)
class Piece:
    """A part of a graph, compiled anew for arguments of another kind. `eager` runs it for more than `most` kinds.

    `straight` are quick ways to variants, for arguments that are distinct tensors.
    """

    module: fx.GraphModule
    compile: Compile
    eager: Callable[..., Any]
    most: int = MOST_VARIANTS
    variants: list[Variant] = field(default_factory=list)
    straight: list[StraightCall] = field(default_factory=list)
    given_back: GivenBack = field(init=False)

    def __post_init__(self) -> None:
        self.given_back = GivenBack(nodes_of(self.module), is_part=True)

    def __call__(self, *args: object) -> Sequence[Any]:
        for call in self.straight:
            results = call(args, {})
            if results is not MISS:
                return results
        return self._searched(args)

    def _searched(self, args: tuple[object, ...]) -> Sequence[Any]:
        """What the variant for these arguments returns, which is compiled where there is none yet."""
        flat, structure = pytree.tree_flatten(args)
        given = Arguments.of(flat)
        fixed, kind = _fixed(given, structure), Kind.of(given.tensors, tuple(given.integers))
        for variant in self.variants:
            if variant.serves(fixed, kind, given):
                break
        else:
            variant = self._variant(given, fixed, kind, structure)
        if variant.run is None:
            self.given_back.count(variant.reason)
            return self.eager(*args)
        results = variant.run(*given.read_by_kernels())
        if variant.holds is None and isinstance(results, tuple) and _are_distinct_tensors(args):
            self._go_straight(args, variant.run, len(results))
        return results

    def _go_straight(self, args: tuple[object, ...], run: Callable[..., Sequence[Any]], results: int) -> None:
        """Notes the quick way to what runs these arguments, and gives a tuple of so many results."""
        if len(self.straight) >= STRAIGHT_CALLS:
            return
        structure = pytree.tree_structure((0,) * results)
        call = straight_call(args, {}, lambda given: run(*given), structure)
        if call is not None:
            self.straight.append(call)

    def _variant(self, given: Arguments, fixed: object, kind: Kind, structure: pytree.TreeSpec) -> Variant:
        if len(self.variants) >= self.most:
            return Variant(fixed, kind, None)
        refusal = _why_not_known(given.tensors)
        if reason := _in_level() or why_not_read(given.tensors) or (refusal if self._asks_history() else ""):
            return Variant(fixed, kind, None, None, reason)
        alike = [variant.kind for variant in self.variants if variant.fixed == fixed]
        moving = _or(self._symbolic(kind), Moving.between(kind, alike))
        examples = Examples.of(moving, reads_numbers=True)
        made = _examples(given.without_history() if refusal else given, examples)
        run = self.compile(flattened(self.module, given, structure), made)
        variant = Variant(fixed, kind, run, None if examples.assumed is None else examples.assumed.test())
        self.variants.insert(0, variant)
        return variant

    def _asks_history(self) -> bool:
        """Whether it matters where the arguments come from: where gradients are on or are switched, or memory is
        written, after which autograd may refuse to look at views."""
        graphs = [each.graph for each in self.module.modules() if isinstance(each, fx.GraphModule)]
        nodes = [node for graph in graphs for node in graph.nodes if node.op.startswith("call_")]
        return torch.is_grad_enabled() or any(is_switch(node) or may_write(node) for node in nodes)

    def _symbolic(self, kind: Kind) -> Moving | None:
        """The sizes and integers that are symbols in the graph that this is a part of."""
        flat = pytree.tree_leaves([node.meta.get("example_value") for node in self._placeholders()])
        tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        numbers = [value for value in flat if isinstance(value, torch.SymInt)]
        if len(tensors) != len(kind.outlines) or len(numbers) != len(kind.numbers):
            return None
        dims = tuple(
            frozenset(dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt))
            if value.layout is torch.strided else frozenset[int]()
            for value in tensors
        )  # fmt: skip
        return Moving(dims, frozenset(range(len(numbers)))) if numbers or any(dims) else None

    def _placeholders(self) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]


def _why_not_known(tensors: Sequence[torch.Tensor]) -> str:
    """Why autograd does not say where some tensors come from; "" where it does."""
    try:
        for tensor in tensors:
            _ = tensor.grad_fn
    except RuntimeError as refusal:
        return f"autograd refuses to say where an input comes from: {refusal}"
    return ""


def _are_distinct_tensors(args: Sequence[object]) -> bool:
    return all(isinstance(value, torch.Tensor) for value in args) and len(set(map(id, args))) == len(args)


def _or(one: Moving | None, other: Moving | None) -> Moving | None:
    return one | other if one is not None and other is not None else one or other


def _fixed(given: Arguments, structure: pytree.TreeSpec) -> object:
    """What of a call a variant is never a symbol for, beside the outlines of the tensors."""
    traits = tuple((value.requires_grad, is_leaf(value), value.is_inference()) for value in given.tensors)
    first = [next(place for place, other in enumerate(given.objects) if other is value) for value in given.objects]
    objects = [(kind_of_object(value), place) for value, place in zip(given.objects, first, strict=True)]
    return Ambient.now(), structure, given.order, traits, tuple(map(_identity, given.constants)), tuple(objects)


def _identity(value: object) -> tuple[type, object]:
    """A constant as a key; one that has no hash by the object that it is."""
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value


def _examples(given: Arguments, examples: Examples) -> list[object]:
    tensors = iter([examples.tensor(place, value) for place, value in enumerate(given.tensors)])
    integers = iter([examples.integer(place, number) for place, number in enumerate(given.integers)])
    numbers = iter([examples.mode.from_tensor(as_data(value)) for value in given.floats])
    sources: dict[str, Iterator[object]] = {"tensors": tensors, "integers": integers, "floats": numbers}
    sources["objects"] = iter(given.objects)
    return [next(sources[sort]) for sort in given.order if sort != "constants"]


def flattened(gm: fx.GraphModule, given: Arguments, structure: pytree.TreeSpec) -> fx.GraphModule:
    """The graph over the leaves of its arguments: constants stand in it, and floats are read from tensors."""
    graph = fx.Graph()
    constants = iter(given.constants)
    leaves: list[object] = []
    for place, sort in enumerate(given.order):
        if sort == "constants":
            leaves.append(next(constants))
            continue
        taken = graph.placeholder(f"input_{place}")
        leaves.append(graph.call_method("item", (taken,)) if sort == "floats" else taken)
    nodes = list(gm.graph.nodes)
    arguments = pytree.tree_unflatten(leaves, structure)
    copies = dict(zip((node for node in nodes if node.op == "placeholder"), arguments, strict=True))
    for node in nodes:
        if node in copies:
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = made = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
    module = fx.GraphModule(gm, graph)
    module.meta.update(gm.meta)
    return module
