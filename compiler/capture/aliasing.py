"""Which results are inputs, or views of inputs, of other results or of intermediates: read off the recorded graph.

    x -> mul -> view -> transpose -> result      the result is View(of=Base(mul), how=(view, transpose))

In a functional graph an alias is a chain of view calls, so the chain from a result back to the first call that is
none is exactly how eager made it. Replaying that chain on the real base gives eager's `grad_fn`, `_base` and strides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch import fx

from compiler.capture.inputs import Call
from compiler.errors import Unsupported
from compiler.ir.roles import (
    Base,
    CallInput,
    Constant,
    Input,
    Mutation,
    OutputRole,
    Result,
    Same,
    Size,
    UserOutput,
    View,
    ViewStep,
)
from compiler.ir.trace import SYMBOLIC, Symbolic, Trace, producer

Returned = torch.Tensor | Symbolic | fx.Node


@dataclass(slots=True)
class Aliases:
    """Collects, result by result, what the graph must return and how each result is made of it.

    `owners` maps the node that holds an input's value after the call to that input.
    """

    trace: Trace
    owners: dict[fx.Node, CallInput]
    returned: dict[OutputRole, Returned] = field(default_factory=dict)
    differentiable: set[OutputRole] = field(default_factory=set)
    _homes: dict[fx.Node, OutputRole] = field(default_factory=dict)
    _first: dict[fx.Node, int] = field(default_factory=dict)

    def results(self, values: list[object]) -> tuple[Result, ...]:
        """How each of the call's flat results is made."""
        for index, value in enumerate(values):
            self._claim_home(index, value)
        return tuple(self._result(index, value) for index, value in enumerate(values))

    def _claim_home(self, index: int, value: object) -> None:
        """A result that is no view of anything becomes an output of the graph."""
        if not _is_recorded(value):
            return
        node = self.trace.node_of(value)
        if node in self.owners or node in self._homes or is_view(producer(node)[0]):
            return
        self._add(UserOutput(index), node, value)

    def _add(self, role: OutputRole, node: fx.Node, value: Returned) -> None:
        self._homes[node] = role
        self.returned[role] = value
        if isinstance(value, torch.Tensor) and value.requires_grad:
            if value.is_leaf:
                raise Unsupported("the program returns a leaf that requires grad and that it made itself")
            self.differentiable.add(role)

    def _result(self, index: int, value: object) -> Result:
        if isinstance(value, SYMBOLIC):
            return self._size(self.trace.node_of(value), value)
        if not _is_recorded(value):
            return Constant(value)
        node = self.trace.node_of(value)
        first = self._first.setdefault(node, index)
        if first != index:
            return Same(first)
        if node in self.owners:
            return Input(self.owners[node])
        home = self._homes.get(node)
        return home if isinstance(home, UserOutput) else self._view(node, value)

    def _size(self, node: fx.Node, value: Returned) -> Size:
        role = Size(node.name)
        self.returned.setdefault(role, value)
        return role

    def _view(self, node: fx.Node, value: torch.Tensor) -> View:
        base = value._base if value.requires_grad else None
        stop = self.trace.node_of(base) if base is not None else None
        root, how = self._chain(node, stop)
        if root in self.owners:
            return View(self.owners[root], how, value.requires_grad)
        if root.op == "placeholder":
            raise Unsupported(f"the program returns a view of input {root.name} as it was before it was written")
        if root not in self._homes:
            self._add(Base(len(self._homes)), root, base if base is not None else root)
        of = self._homes[root]
        if value.requires_grad and of not in self.differentiable:
            if base is None:
                raise Unsupported(f"the program returns a view that requires grad of {root.name}, which does not")
            self.returned[of] = base
            self.differentiable.add(of)
        return View(of, how, value.requires_grad)  # type: ignore[arg-type]

    def _chain(self, node: fx.Node, stop: fx.Node | None) -> tuple[fx.Node, tuple[ViewStep, ...]]:
        """The first call behind `node` that is no view, and the steps from it."""
        steps: list[ViewStep] = []
        while node is not stop:
            call, items = producer(node)
            if not is_view(call) or len(items) > 1:
                break
            steps.append(self._step(call, items[0] if items else None))
            node = self.trace.resolve(call.args[0])  # type: ignore[arg-type]
        return node, tuple(reversed(steps))

    def _step(self, call: fx.Node, item: int | None) -> ViewStep:
        if call.kwargs:
            raise Unsupported(f"the program returns a view made by {call.target} with keyword arguments")
        arguments: object = fx.map_arg(call.args[1:], lambda node: self._size(node, node))  # type: ignore[arg-type, return-value]
        return ViewStep(call.target, tuple(arguments), item)  # type: ignore[arg-type]


def is_view(node: fx.Node) -> bool:
    """Whether the node's result shares memory with its first argument."""
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _is_recorded(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and torch._is_functional_tensor(getattr(value, "elem", value))


def written(argument: torch.Tensor) -> bool:
    """Whether the program wrote the data of this input.

    Raises: Unsupported for writes of metadata or storage, which are not replayed yet.
    """
    torch._sync(argument)
    elem = argument.elem  # type: ignore[attr-defined]
    if torch._functionalize_was_storage_changed(elem):
        raise Unsupported("the program replaces the storage of an input (set_, .data = ...)")
    if torch._functionalize_has_metadata_mutation(elem):
        raise Unsupported("the program changes the shape or strides of an input in place")
    return bool(torch._functionalize_has_data_mutation(elem))  # type: ignore[attr-defined]


def mutation_of(role: CallInput, argument: torch.Tensor, version_before: int) -> Mutation:
    """How the writes of an input reach the caller's tensor."""
    elem = argument.elem  # type: ignore[attr-defined]
    writes = argument._version - version_before
    if torch._functionalize_are_all_mutations_hidden_from_autograd(elem):
        return Mutation(role, "hidden", 0)
    if torch._functionalize_are_all_mutations_under_no_grad_or_inference_mode(elem):
        return Mutation(role, "no_grad", writes)
    return Mutation(role, "seen", writes)


def check_overlaps(call: Call, mutations: dict[CallInput, Mutation]) -> None:
    """Raises: Unsupported when an input that the program writes shares memory with another input."""
    for position in call.overlapping:
        if call.leaves[position].role in mutations:
            raise Unsupported(f"input {call.leaves[position].role} is written and shares memory with another input")
