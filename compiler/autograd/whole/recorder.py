"""`Recorder`: the object that the autograd engine calls, once for each thing that it would do, while it is recorded.

    begin_capture -> (set_node_origin -> hooks -> apply -> validate -> hooks) for each node -> end_capture -> close

What it gives back stands for values (`stand_ins.py`), so nothing is computed while it records. The result is a
`Backward`: steps over values, which `compile` makes a call of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.compiler.autograd.whole.copy_slices import after_function, before_function
from assay.compiler.autograd.whole.eager_order import in_eager_order
from assay.compiler.autograd.whole.missing_gradients import takes_zeros
from assay.compiler.autograd.whole.own_backwards import inlined, is_ours
from assay.compiler.autograd.whole.own_formulas import FORMULAS
from assay.compiler.autograd.whole.stand_ins import Between, Number, stand_in, symbol
from assay.compiler.ir.graph.backward.engine_steps import (
    Accumulated,
    Backward,
    CallSize,
    Computed,
    Hook,
    Kind,
    Leaf,
    Made,
    Packed,
    Saved,
    Scalar,
    Size,
    Step,
    Unpacking,
    Value,
)
from assay.compiler.torch_compat import accumulated_gradient, name_of_node, node_of_name, takes_accumulated

Call = Callable[..., list[torch.Tensor | None]]
"""Takes the compiled backward, then inputs, sizes, scalars, hooks and packed objects; the engine calls it."""
Compile = Callable[[Backward, "Begun"], tuple[Call, Callable[..., object]]]

FUNCTIONS: dict[str, tuple[Callable[..., Any], bool]] = {}
"""The function of each kind of node, and whether it may be traced. The engine binds each once a process."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What the engine says of a backward before it: the real tensors and numbers, the number of sizes, and whether
    gradients are accumulated."""

    inputs: tuple[torch.Tensor, ...]
    sizes: tuple[int, ...]
    scalars: tuple[float, ...]
    accumulates: bool


@dataclass(slots=True)
class Recorder:
    """One recording. `roots` are the nodes that the backward begins at, and those it is for, where they are known."""

    compile: Compile
    walk: Callable[[Sequence[str]], Mapping[int, int] | None]
    number: int
    begun: Begun | None = None
    steps: list[Step] = field(default_factory=list)
    roles: dict[int, Value] = field(default_factory=dict)
    kept: list[torch.Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    guards: dict[tuple[Any, float], None] = field(default_factory=dict)
    views: list[tuple[Any, Any]] = field(default_factory=list)
    between: Between | None = None

    def begin_capture(
        self,
        inputs: Sequence[torch.Tensor],
        sizes: Sequence[int],
        scalars: Sequence[float],
        origins: object,
        accumulate_grad: bool,
        check_nans: bool,
    ) -> tuple[str, list[torch.Tensor], list[Any], list[Any]]:
        self.begun = Begun(tuple(inputs), tuple(sizes), tuple(scalars), accumulate_grad)
        tensors = [self._stand_in(Saved(index)) for index in range(len(inputs))]
        numbers = [symbol(Size(index), size, self._asked) for index, size in enumerate(sizes)]
        factors = [symbol(Scalar(index), scalar, self._asked) for index, scalar in enumerate(scalars)]
        self.between = Between(self._operator)
        self.between.__enter__()
        return f"assay {self.number}", tensors, numbers, factors

    def set_node_origin(self, name: str, index: int, function: object) -> None:
        self.names.append(name)

    def bind_function(self, name: str, function: Callable[..., Any], is_custom: bool, is_traceable: bool) -> str:
        own = f"{name}_{len(FUNCTIONS)}" if is_custom else name
        name = name_of_node(name, function, is_custom, is_traceable) or own
        FUNCTIONS[name] = FORMULAS.get(name, function), is_traceable
        return name

    def apply_functional(
        self, name: str, gradients: Sequence[Any], arguments: Sequence[Any], metas: Sequence[object]
    ) -> list[Any]:
        function, is_traceable = _bound(name)
        return self._add("formula" if is_traceable else "opaque", function, (gradients, *arguments), len(metas))

    def validate_outputs(
        self, name: str, outputs: Sequence[Any], arguments: Sequence[Any], metas: Sequence[object]
    ) -> list[Any]:
        if not outputs:
            return []
        return self._add("formula", _bound(name)[0], (outputs, *arguments), len(outputs))

    def accumulate(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        (made,) = self._add("add", None, (old, new), 1)
        return made

    def accumulate_grad(self, leaf: torch.Tensor, *given: Any) -> torch.Tensor | None:
        self._is_leaf(leaf)
        self._add("accumulate", None, (leaf, accumulated_gradient(given)), 0)
        after = self._stand_in(Accumulated(len(self.steps) - 1))
        return after if takes_accumulated(given) else None

    def tensor_pre_hook(self, inputs: list[Any], hook: int, index: int) -> list[Any]:
        (inputs[index],) = self._add("tensor_pre_hook", None, (Hook(hook), inputs[index], index), 1)
        return inputs

    def cpp_tensor_pre_hook(self, inputs: list[Any], hook: int, index: int) -> list[Any]:
        (inputs[index],) = self._add("retain_grad", None, (hook, inputs[index]), 1)
        return inputs

    def pre_hook(self, inputs: Sequence[Any], hook: int) -> list[Any]:
        return self._add("pre_hook", None, (Hook(hook), tuple(inputs)), len(inputs))

    def post_hook(self, outputs: Sequence[Any], inputs: Sequence[Any], hook: int) -> list[Any]:
        return self._add("post_hook", None, (Hook(hook), tuple(outputs), tuple(inputs)), len(outputs))

    def post_acc_grad_hook(self, leaf: torch.Tensor, hook: int) -> list[torch.Tensor]:
        self._is_leaf(leaf)
        self._add("post_accumulate_hook", None, (Hook(hook), leaf), 0)
        return [leaf]

    def unpack_hook(self, hook: int, data: int) -> torch.Tensor:
        (made,) = self._add("unpack", None, (Hook(hook), Packed(data)), 1)
        return made

    def proxy_call_backward(
        self,
        inputs: Sequence[Any],
        metas: Sequence[object],
        saved: Sequence[Any],
        context: int,
        function: object,
        state: int | None,
        opaque: Sequence[int],
    ) -> tuple[Any, ...]:
        recorded, ours = inlined(function, inputs), is_ours(function)
        if recorded is None:
            is_tensor = tuple(meta is not None for meta in metas)
            fills = takes_zeros(function, inputs)
            kept = tuple(saved) if ours else self._unpacked_later(saved)
            given = Hook(context), tuple(inputs), kept, is_tensor, fills
            made = self._add("backward", None, given, len(metas), ours)
        else:
            sizes = tuple(CallSize(context, index) for index in range(len(getattr(function, "sizes", ()))))
            made = self._add("formula", recorded, (tuple(inputs), tuple(saved), sizes), len(metas), ours)
        return tuple(None if meta is None else value for meta, value in zip(metas, made, strict=True))

    def _unpacked_later(self, saved: Sequence[Any]) -> tuple[Any, ...]:
        """What a function of the user's has saved. What hooks have packed it unpacks itself, each time that it reads
        it: the steps by which the engine would do so before the call are taken back."""
        values = [self._roles_of(each) for each in saved]
        while self.steps and self.steps[-1].kind == "unpack":
            made = Made(len(self.steps) - 1, 0)
            if made not in values:
                break
            values[values.index(made)] = Computed(Unpacking, self.steps.pop().arguments)
        return tuple(values)

    def call_copy_slices_prologue(
        self,
        inputs: Sequence[Any],
        base_sizes: Any,
        base_strides: Any,
        base_offset: Any,
        view_sizes: Any,
        view_strides: Any,
        view_offset: Any,
    ) -> list[Any]:
        base, view = (base_sizes, base_strides, base_offset), (view_sizes, view_strides, view_offset)
        self.views.append((base, view))
        return self._add("formula", before_function, (list(inputs), base, view), 3)

    def call_copy_slices_epilogue(self, needs: Sequence[bool], result: Any, found: Any, part: Any) -> list[Any]:
        base, view = self.views.pop()
        return self._add("formula", after_function, (list(needs), result, list(found), base, view), len(needs))

    def bind_backward_state(self, index: int) -> object:
        raise NotImplementedError("hooks that are registered inside compiled code by another compiler")

    def end_capture(self, outputs: Sequence[Any]) -> tuple[Call, Callable[..., object]]:
        assert self.begun is not None
        self.close()
        backward = Backward(tuple(self.steps), tuple(self._roles_of(outputs)), tuple(self.guards))
        order = self.walk(self.names)
        return self.compile(backward if order is None else in_eager_order(backward, order), self.begun)

    def close(self) -> None:
        if self.between is not None:
            self.between.__exit__(None, None, None)
            self.between = None

    def _asked(self, number: object, answer: float) -> None:
        """The engine goes by a number from here on."""
        self.guards[number, answer] = None

    def _stand_in(self, role: Value) -> torch.Tensor:
        made = stand_in()
        self.roles[id(made)] = role
        self.kept.append(made)
        return made

    def _is_leaf(self, leaf: torch.Tensor) -> None:
        role = self.roles[id(leaf)]
        if isinstance(role, Saved):
            self.roles[id(leaf)] = Leaf(role.index)

    def _add(
        self,
        kind: Kind,
        function: Callable[..., Any] | None,
        arguments: Sequence[Any],
        count: int,
        is_ours: bool = False,
    ) -> list[Any]:
        """Records a step; what stands for its results."""
        node = len(self.names) - 1
        label = self.names[-1] if self.names else ""
        step = Step(kind, label, node, function, tuple(map(self._roles_of, arguments)), count, is_ours)
        self.steps.append(step)
        return [self._stand_in(Made(len(self.steps) - 1, item)) for item in range(count)]

    def _operator(self, operator: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """An operator that the engine calls itself."""
        (made,) = self._add("formula", _Operator(operator), (tuple(args), dict(kwargs)), 1)
        return made

    def _roles_of(self, given: Any) -> Any:
        """Arguments, with values in the place of what stands for them."""
        kind = type(given)
        if kind is tuple or kind is torch.Size:
            return tuple([self._roles_of(each) for each in given])
        if kind is list:
            return [self._roles_of(each) for each in given]
        if kind is dict:
            return {name: self._roles_of(each) for name, each in given.items()}
        if kind is torch.SymInt or kind is torch.SymFloat:
            return given.node.role if isinstance(given.node, Number) else given
        return self.roles.get(id(given), given) if isinstance(given, torch.Tensor) else given


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator as a formula, which gives a list."""

    operator: Callable[..., Any]

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        return [self.operator(*args, **kwargs)]


def _bound(name: str) -> tuple[Callable[..., Any], bool]:
    """The function of a kind of node.

    Raises: NotImplementedError where the engine has told another compiler of it, as it tells only one, which does not
    hand it on.
    """
    if name not in FUNCTIONS and (known := node_of_name(name)) is not None:
        FUNCTIONS[name] = known
    if name not in FUNCTIONS:
        raise NotImplementedError(f"the engine has told another compiler of backwards what {name} computes")
    return FUNCTIONS[name]
