"""`Rest`: what is left of a compiled backward in which a hook has come or gone, run step by step with the hooks of now.

    tensor_pre_hook(hooks[0], made_2_0)        it registers a hook on a tensor that eager comes to later
    if changes: return rest(7, locals())       parts 7, 8, ... run here

A hook that comes to a node itself, and not to a tensor, is not seen before the next backward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import Node, get_gradient_edge

from assay.compiler.autograd.whole.traced import run_steps
from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
    CallSize,
    Hook,
    Leaf,
    Made,
    Packed,
    Part,
    Saved,
    Scalar,
    Size,
    Step,
    Stretch,
    Value,
    filled,
    values_in,
)
from assay.compiler.runtime import engine_calls

Place = tuple[int, int]
"""A node by its number in the engine's order, and which of its gradients."""
Numbers = Callable[[], Mapping[Node, int]]
NONE_GONE: frozenset[int] = frozenset()
"""For hooks that have been read just now, when the first of them is called."""
OF_NODES = {"pre_hook": "register_prehook", "post_hook": "register_hook"}


@dataclass(frozen=True, slots=True)
class Rest:
    """Runs what is left of a backward. `numbers` gives the nodes of the backward that runs now."""

    backward: Backward
    parts: Sequence[Part]
    numbers: Numbers

    def __call__(
        self,
        first: int,
        variables: Mapping[str, Any],
        leaves: Sequence[Sequence[int]] = (),
        done: Sequence[int] = (),
    ) -> list[Any]:
        """Runs the parts from number `first` on, with the variables of the emitted function; of the steps of `leaves`
        those that are `done` have run."""
        run = [position for leaf in done for position in leaves[leaf]]
        before = [position for part in self.parts[:first] for position in self._steps(part)] + run
        left = [set(self._steps(part)) - set(run) for part in self.parts[first:]]
        numbers = self.numbers()
        tensors = dict(_places(numbers))
        nodes = {number: node for node, number in numbers.items()}
        last = self.backward.steps[before[-1]]
        running = _Running(self.backward, variables, tensors, nodes, last.node, last.hooks, variables.get("gone", ()))
        return running.run(sorted(position for part in left for position in part))

    @staticmethod
    def _steps(part: Part) -> Sequence[int]:
        return part.steps if isinstance(part, Stretch) else (part.step,)


def _places(numbers: Mapping[Node, int]) -> Iterator[tuple[Place, torch.Tensor]]:
    """The tensors whose hooks have changed, by their places in this backward."""
    for tensor in engine_calls.changes:
        if tensor is not None and tensor.requires_grad:
            edge = get_gradient_edge(tensor)
            if edge.node in numbers:
                yield (numbers[edge.node], edge.output_nr), tensor


@dataclass(slots=True)
class _Running:
    """`tensors` are those whose hooks are read anew, `begun` the node that had begun already, `owner` whose hooks are
    called now, and `gone` what was taken away before the first of them. `swapped` holds, for a node, what hooks gave in
    the place of a gradient, and `called` the groups of hooks that have been called."""

    backward: Backward
    variables: Mapping[str, Any]
    tensors: dict[Place, torch.Tensor]
    nodes: Mapping[int, Node]
    begun: int
    owner: tuple[object, ...] | None
    gone: Collection[int]
    known: dict[Value, Any] = field(default_factory=dict)
    swapped: dict[Value, Any] = field(default_factory=dict)
    called: dict[tuple[int, str], Any] = field(default_factory=dict)

    def run(self, positions: Sequence[int]) -> list[Any]:
        node = self.begun
        for position in positions:
            step = self.backward.steps[position]
            if step.node != node:
                node = step.node
                self.swapped.clear()
            self._call_hooks_of_tensors(step)
            for item, value in enumerate(self._run(position, step)):
                self.known[Made(position, item)] = value
        self.swapped.clear()
        return list(filled(self.backward.outputs, self._read))

    def _call_hooks_of_tensors(self, step: Step) -> None:
        """Calls the hooks that tensors have now, in front of the first step that reads their gradients."""
        for item, gradient in enumerate(step.gradients):
            place = step.node, step.item if step.kind == "tensor_pre_hook" else item
            tensor = self.tensors.get(place)
            if tensor is None or step.node == self.begun or not isinstance(gradient, (Made, Saved)):
                continue
            del self.tensors[place]
            self.called[step.node, f"tensor {place[1]}"] = True
            value = self._read(gradient)
            for hook in list((tensor._backward_hooks or {}).values()):
                value = engine_calls.tensor_pre_hook(hook, value, NONE_GONE)
            self.swapped[gradient] = value

    def _run(self, position: int, step: Step) -> Sequence[Any]:
        if step.is_pure:
            stretch = Stretch((position,), (), tuple(Made(position, item) for item in range(step.count)), ())
            read = {value: self._read(value) for value in values_in(step.arguments)}
            return run_steps(self.backward, stretch, read)
        given = filled(step.arguments, self._read)
        if step.kind == "accumulate":
            self._accumulate(step, *given)
            return ()
        if self._is_missing(step):
            return given[1] if step.count > 1 or step.kind in OF_NODES else [given[1]]
        return self._call(step, given)

    def _call(self, step: Step, given: Sequence[Any]) -> Sequence[Any]:
        if step.hooks != self.owner:
            self.owner, self.gone = step.hooks, frozenset(engine_calls.removed)
        if step.kind == "tensor_pre_hook":
            is_called = (step.node, f"tensor {step.item}") in self.called
            return [given[1] if is_called else engine_calls.tensor_pre_hook(given[0], given[1], self.gone)]
        if step.kind == "post_accumulate_hook" and (step.node, step.kind) in self.called:
            return ()
        if step.kind == "opaque":
            return step.function(*given)  # type: ignore[misc]
        if step.kind in OF_NODES and step.node != self.begun:
            return self._of_node(step, given)
        gone = () if step.hooks is None else (self.gone,)
        found = engine_calls.CALLS[step.kind](*given, *gone)
        return [found] if step.kind in ("retain_grad", "unpack") else found or ()

    def _of_node(self, step: Step, given: Sequence[Any]) -> Sequence[Any]:
        """What the hooks that a node has now give in the place of its gradients; the first of them calls all."""
        if (step.node, step.kind) not in self.called:
            self.called[step.node, step.kind] = True
            for hook in _hooks_of(getattr(self.nodes[step.node], OF_NODES[step.kind])):
                given = [given[0], engine_calls.CALLS[step.kind](hook, *given[1:], NONE_GONE), *given[2:]]
        return given[1]

    def _accumulate(self, step: Step, leaf: torch.Tensor, gradient: Any) -> None:
        engine_calls.accumulate(leaf, [gradient])
        if gradient is not None or step.arguments[1] not in self.backward.behind_ours:
            self.called[step.node, "post_accumulate_hook"] = True
            for hook in list((leaf._post_accumulate_grad_hooks or {}).values()):
                engine_calls.post_accumulate_hook(hook, leaf, NONE_GONE)

    def _is_missing(self, step: Step) -> bool:
        """Whether eager does not come to a hook, as no gradient reaches its node."""
        if step.kind not in ("tensor_pre_hook", "pre_hook", "post_hook"):
            return False
        values = [value for value in values_in(step.gradients) if not isinstance(value, Hook)]
        is_behind = bool(values) and all(value in self.backward.behind_ours for value in values)
        return is_behind and all(self._read(value) is None for value in values)

    def _read(self, value: Any) -> Any:
        if value in self.swapped:
            return self.swapped[value]
        match value:
            case Leaf(index) | Saved(index):
                return self.variables[f"input_{index}"]
            case Size(index):
                return self.variables["sizes"][index]
            case Scalar(index):
                return self.variables["scalars"][index]
            case CallSize(context, index):
                return self.variables["hooks"][context].sizes[index]
            case Hook(index):
                return self.variables["hooks"][index]
            case Packed(index):
                return self.variables["packed"][index]
            case Accumulated(step):
                return self._read(self.backward.steps[step].arguments[0]).grad
        return self.known[value] if value in self.known else self.variables[f"made_{value.step}_{value.item}"]


def _hooks_of(register: Callable[[Callable[..., None]], Any]) -> list[Callable[..., Any]]:
    """The hooks of a node, which only tells of them where one is registered."""
    with engine_calls.unnoticed():
        handle = register(lambda *_: None)
        hooks = handle.hooks_dict_ref()
        handle.remove()
    return list(hooks.values())
