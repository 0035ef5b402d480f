"""A functional graph of somebody else's as a program: its signature, and values for the nodes that lack theirs.

gm = make_fx(lambda x, n: (x + n,))(x, 3)       a placeholder `n` of which nothing is known
program_of(gm, [x, 3])                          the same graph, and that `n` is 3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from assay.compiler.capture.inputs import fake_mode_of, has_same_bits
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.roles import Begins, Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.trace import is_view
from assay.compiler.ir.graph.writes.storage_offsets import begins, divisor_of
from assay.compiler.ir.tensors.layout.strides import SYMBOLIC


def program_of(gm: fx.GraphModule, examples: Sequence[object]) -> Program:
    """A copy of the graph, each node with a value, whose inputs and outputs are the user's.

    Raises: Unsupported for a graph that does not return one flat tuple or list, or takes another number of inputs.
    """
    own = fx.GraphModule(gm, gm.graph.__deepcopy__({}))
    returned = next(iter(reversed(own.graph.nodes))).args[0]
    if not isinstance(returned, (tuple, list)) or not all(map(_is_flat, returned)):
        raise Unsupported(f"the graph returns {returned}: compile_fx_inner takes graphs that return one flat tuple")
    signature = Signature(
        tuple(UserInput(index) for index, _ in enumerate(examples)),
        tuple(UserOutput(index) for index, _ in enumerate(returned)),
    )
    program = Program(own, signature)
    if len(program.placeholders) != len(examples):
        raise Unsupported(f"the graph takes {len(program.placeholders)} inputs and is given {len(examples)} examples")
    fill_values(program, examples)
    return program


def _is_flat(value: object) -> bool:
    return not isinstance(value, (tuple, list, dict, slice))


def fill_values(program: Program, examples: Sequence[object]) -> None:
    """Gives the values that the nodes lack; numbers that are inputs take the place of what they are read for.

    All values are then of one fake mode. A graph that was recorded with real tensors has one of its own for each.
    """
    nodes = [node for node in program.module.graph.nodes if node.op != "output"]
    mode = fake_mode_of(node.meta.get("val") for node in nodes) or fake_mode_of(examples) or FakeTensorMode()
    for node in (node for node in nodes if "val" in node.meta):
        node.meta["val"] = pytree.tree_map_only(FakeTensor, partial(_fake, mode=mode), node.meta["val"])
    for node, example in zip(program.placeholders, examples, strict=True):
        if "val" not in node.meta:
            node.meta["val"] = _fake(example, mode)
            if not isinstance(node.meta["val"], (torch.Tensor, *SYMBOLIC)):
                node.replace_all_uses_with(node.meta["val"])
    if any("val" not in node.meta for node in nodes if node.op == "call_function"):
        _Filling(program.module, mode).run(*(node.meta["val"] for node in program.placeholders))


def _fake(example: object, mode: FakeTensorMode) -> object:
    if not isinstance(example, torch.Tensor) or (isinstance(example, FakeTensor) and example.fake_mode is mode):
        return example
    return mode.from_tensor(example, static_shapes=not isinstance(example, FakeTensor))


class _Filling(fx.Interpreter):
    """Runs a graph on fake tensors, and notes what each node gives that has no value yet."""

    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module)
        self._mode = mode

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function" and "val" in n.meta:
            return n.meta["val"]
        with self._mode, torch.no_grad():
            result = super().run_node(n)
        if n.op == "get_attr" and isinstance(result, torch.Tensor):
            result = self._mode.from_tensor(result)
        if n.op != "output":
            n.meta.setdefault("val", result)
        return result


def read_numbers(program: Program) -> Mapping[int, object]:
    """The inputs that are numbers and that the graph was built for, by their positions."""
    return dict(_numbers(program))


def _numbers(program: Program) -> Iterator[tuple[int, object]]:
    for position, node in enumerate(program.placeholders):
        if not isinstance(node.meta["val"], (torch.Tensor, *SYMBOLIC)):
            yield position, node.meta["val"]


def read_offsets(program: Program) -> tuple[Begins, ...]:
    """What the graph relies on of where its inputs begin in their storages."""
    divisors: dict[fx.Node, set[int]] = {}
    for node in (node for node in program.module.graph.nodes if node.op == "call_function"):
        divisor = divisor_of(node.target, *fx.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val")))
        if divisor is not None:
            divisors.setdefault(_viewed(node.args[0]), set()).add(divisor)
    pairs = list(zip(program.signature.inputs, program.placeholders, strict=True))
    given: Any = ((role, node.meta["val"].storage_offset(), divisors[node]) for role, node in pairs if node in divisors)
    return tuple(each for role, offset, relied in given for each in begins(role, offset, relied))


def _viewed(node: Any) -> fx.Node:
    """What a chain of views begins with."""
    while isinstance(node.args[0] if node.args else None, fx.Node) and (node.target is getitem or is_view(node)):
        node = node.args[0]
    return node


def why_not_same(
    fakes: Sequence[object], args: Sequence[object], numbers: Mapping[int, object], offsets: Sequence[Begins] = ()
) -> str:
    """Why a graph that was built for these fakes, numbers and offsets is not for some arguments; "" if it is."""
    for position, number in numbers.items():
        if args[position] != number:
            return f"input {position} is {args[position]} where the graph was compiled for {number}"
    if not has_same_bits(fakes, args):
        return "an input is lazily conjugated or negated as none was that the graph was compiled for"
    for each in offsets:
        if not each.holds(args[each.of.index]):  # type: ignore[arg-type]
            return f"input {each.of.index} begins elsewhere in its storage than the graph was compiled for"
    return ""
