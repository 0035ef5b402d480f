"""The backward of a whole program as the autograd engine runs it: a list of steps in order, each of one node.

    Backward := steps: (Step, ...)  outputs: (Value, ...)
    Step     := kind, label, node, function, arguments, count
    Part     := Stretch(steps, takes, gives, numbers) | Ordered(step)
    Number   := Size(index) | Scalar(index) | CallSize(context, index) | Computed(function, numbers)
    Value    := Leaf(index) | Saved(index) | Size(index) | Scalar(index) | Hook(index) | Packed(index)
              | CallSize(context, index) | Made(step, item) | Accumulated(step) | anything else, which is a constant

`arguments` hold values in tuples, lists and dictionaries. Step `n` gives the values `Made(n, 0)`, `Made(n, 1)`, ...

Steps of the kind `formula` are pure: `function` makes tensors of tensors. All others are ordered: each is a call of the
user's or writes a `.grad`, so it runs exactly once, and in the order of the list.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Leaf:
    """Input `index`: a tensor whose gradient is accumulated."""

    index: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Input `index`: what a node saved for backward, or a gradient that backward begins with."""

    index: int


@dataclass(frozen=True, slots=True)
class Size:
    """Integer `index` among those that nodes keep: a dimension, a size."""

    index: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """Number `index` among those that formulas compute with."""

    index: int


@dataclass(frozen=True, slots=True)
class Hook:
    """Callable `index`: a hook, or the context of a function of the user's."""

    index: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Object `index` that a hook on saved tensors has put in the place of a tensor."""

    index: int


@dataclass(frozen=True, slots=True)
class CallSize:
    """Number `index` among those that the compiled call whose context is hook `context` kept for its backward."""

    context: int
    index: int


@dataclass(frozen=True, slots=True)
class Made:
    """Result number `item` of the step at position `step`."""

    step: int
    item: int


@dataclass(frozen=True, slots=True)
class Accumulated:
    """The `.grad` of a leaf after the step at position `step` has accumulated into it."""

    step: int


@dataclass(frozen=True, slots=True)
class Computed:
    """What `function` makes of numbers, or of a hook and what it has packed."""

    function: Callable[..., Any]
    numbers: tuple[Any, ...]


class Unpacking(NamedTuple):
    """What a function of the user's unpacks each time that it reads what it has saved: `hook` makes the tensor of what
    is `packed`."""

    hook: Callable[..., Any]
    packed: object


Value: TypeAlias = Leaf | Saved | Size | Scalar | Hook | Packed | CallSize | Made | Accumulated
VALUES = (Leaf, Saved, Size, Scalar, Hook, Packed, CallSize, Made, Accumulated)
_VALUES = frozenset(VALUES)

Kind: TypeAlias = Literal[
    "formula",
    "opaque",
    "add",
    "accumulate",
    "tensor_pre_hook",
    "retain_grad",
    "pre_hook",
    "post_hook",
    "post_accumulate_hook",
    "unpack",
    "backward",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the engine, for the node of number `node`, whose name is `label`.

    Arguments by kind:

    formula, opaque       what `function` takes; it gives `count` tensors or Nones
    add                   old, new: two gradients that meet
    accumulate            leaf, gradient
    tensor_pre_hook       hook, gradient, which of the node's gradients that is
    retain_grad           position of the hook, gradient
    pre_hook              hook, gradients
    post_hook             hook, outputs, inputs
    post_accumulate_hook  hook, leaf
    unpack                hook, packed
    backward              context, gradients, saved tensors, which of the function's inputs are tensors, and which of
                          its gradients are zeros where they are missing

    `is_ours`: it is the backward of a compiled call. What that gives no gradient to, eager does not come to.
    """

    kind: Kind
    label: str
    node: int
    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    count: int
    is_ours: bool = False

    def on(self, arguments: tuple[Any, ...]) -> Step:
        """The same call with other arguments."""
        return Step(self.kind, self.label, self.node, self.function, arguments, self.count, self.is_ours)

    @property
    def is_pure(self) -> bool:
        """Whether the step only makes tensors of tensors."""
        return self.kind in ("formula", "add")

    @property
    def item(self) -> int:
        """Which of its node's gradients a hook of a tensor is for."""
        item: int = self.arguments[2]
        return item

    @property
    def hooks(self) -> tuple[object, ...] | None:
        """Whose hooks a hook is one of. Eager reads the hooks of a tensor, or of a node, once, as it comes to them."""
        if self.kind == "tensor_pre_hook":
            return self.node, self.kind, self.item
        return (self.node, self.kind) if self.kind in ("pre_hook", "post_hook", "post_accumulate_hook") else None

    @property
    def gradients(self) -> Sequence[Any]:
        """The gradients that the node is given, as this step is given them."""
        match self.kind:
            case "tensor_pre_hook" | "retain_grad" | "accumulate":
                return self.arguments[1:2]
            case "pre_hook" | "backward":
                return self.arguments[1]
            case "post_hook":
                return self.arguments[2]
            case "formula" | "opaque":
                return self.arguments[0] if isinstance(self.arguments[0], (tuple, list)) else ()
        return ()

    @property
    def saved(self) -> tuple[Any, ...]:
        """The arguments that hold what the node has saved: eager refuses a tensor there that was written."""
        if self.kind == "backward":
            return self.arguments[2:]
        return self.arguments[1:] if self.kind in ("formula", "opaque") else ()

    @property
    def is_user(self) -> bool:
        """Whether the step is a function of the user's, which eager comes to whatever it is given."""
        return self.kind in ("opaque", "backward") and not self.is_ours


@dataclass(frozen=True)
class Backward:
    """All steps of one backward; `outputs` are what `autograd.grad` returns. `guards` are numbers that the engine has
    asked for while it was recorded, each with the answer: the steps are right where the answers are the same."""

    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    guards: tuple[tuple[Any, float], ...] = ()

    @functools.cached_property
    def reads(self) -> tuple[Sequence[Value], ...]:
        """For each step the values among its arguments."""
        return tuple(values_in(step.arguments) for step in self.steps)

    @functools.cached_property
    def accumulated(self) -> dict[Any, int]:
        """The gradients that leaves accumulate, each with the position of the step that does it."""
        return {
            step.arguments[1]: n for n, step in enumerate(self.steps) if step.kind == "accumulate" and _is_made(step)
        }

    @functools.cached_property
    def behind_ours(self) -> frozenset[Value]:
        """The gradients that follow from a compiled call's: where one is missing, eager comes to no node behind it."""
        found: set[Value] = set()
        for position, step in enumerate(self.steps):
            if step.kind == "accumulate" and step.arguments[1] in found:
                found.add(Accumulated(position))
            is_behind = step.is_ours or (not step.is_user and any(value in found for value in self.reads[position]))
            if is_behind:
                found.update(Made(position, item) for item in range(step.count))
        return frozenset(found)

    @functools.cached_property
    def hooks(self) -> Mapping[tuple[object, ...], int]:
        """How many hooks each tensor and each node has, by what `Step.hooks` tells of them."""
        return Counter(step.hooks for step in self.steps if step.hooks is not None)

    @functools.cached_property
    def leaves(self) -> frozenset[int]:
        """The nodes that accumulate."""
        return frozenset(step.node for step in self.steps if step.kind == "accumulate")

    @functools.cached_property
    def calls(self) -> frozenset[int]:
        """The nodes of compiled calls."""
        return frozenset(step.node for step in self.steps if step.is_ours)

    @functools.cached_property
    def last_read(self) -> dict[Value, int]:
        """The position of the step that reads a value last; that behind all steps for an output."""
        read = {value: n for n, values in enumerate(self.reads) for value in values}
        return read | {value: len(self.steps) for value in values_in(self.outputs)}

    def text(self) -> str:
        """One line a step: what it gives, what it is, what it takes."""
        lines = [_line(position, step) for position, step in enumerate(self.steps)]
        return "\n".join([*lines, f"return {_shown(self.outputs)}"])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Pure steps that run as one graph, by their positions; the tensors that it takes, those that it gives, and the
    sizes and scalars that it reads."""

    steps: tuple[int, ...]
    takes: tuple[Value, ...]
    gives: tuple[Made, ...]
    numbers: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """One step that is a call."""

    step: int


Part: TypeAlias = Stretch | Ordered


def is_number(value: Value) -> bool:
    """Whether a value is a size or a number that formulas compute with."""
    return isinstance(value, (Size, Scalar, CallSize))


def filled(structure: Any, read: Callable[[Any], Any]) -> Any:
    """Arguments, with `read(value)` in the place of each value, and what is computed of them.

    Cost: 0.2 us an element.
    """
    kind = type(structure)
    if kind in _VALUES:
        return read(structure)
    if kind is tuple:
        return tuple([filled(each, read) for each in structure])
    if kind is list:
        return [filled(each, read) for each in structure]
    if kind is dict:
        return {name: filled(each, read) for name, each in structure.items()}
    return structure.function(*filled(structure.numbers, read)) if kind is Computed else structure


def renamed(structure: Any, read: Callable[[Any], Any]) -> Any:
    """Arguments of another order of steps: `read(value)` is the value that stands for each. Nothing is computed."""
    if type(structure) is Computed:
        return Computed(structure.function, renamed(structure.numbers, read))
    if type(structure) in (tuple, list):
        return type(structure)([renamed(each, read) for each in structure])
    if type(structure) is dict:
        return {name: renamed(each, read) for name, each in structure.items()}
    return read(structure) if type(structure) in _VALUES else structure


def values_in(structure: Any) -> list[Value]:
    """The values among arguments, in order, each as often as it stands there."""
    found: list[Value] = []
    _collect(structure, found)
    return found


def _collect(structure: Any, found: list[Value]) -> None:
    kind = type(structure)
    if kind in _VALUES:
        found.append(structure)
    elif issubclass(kind, (tuple, list)):
        for each in structure:
            _collect(each, found)
    elif issubclass(kind, dict):
        _collect(tuple(structure.values()), found)
    elif kind is Computed:
        _collect(structure.numbers, found)


def _is_made(step: Step) -> bool:
    return isinstance(step.arguments[1], Made)


def _line(position: int, step: Step) -> str:
    given = ", ".join(f"made_{position}_{item}" for item in range(step.count))
    return f"{given}{' = ' * bool(given)}{step.kind}{_shown(step.arguments)}  # {step.label} ({step.node})"


def _shown(structure: Any) -> str:
    if isinstance(structure, Made):
        return f"made_{structure.step}_{structure.item}"
    if isinstance(structure, CallSize):
        return f"hook_{structure.context}.sizes[{structure.index}]"
    if isinstance(structure, VALUES):
        return f"{type(structure).__name__.lower()}_{getattr(structure, 'index', getattr(structure, 'step', ''))}"
    if isinstance(structure, (tuple, list)):
        return f"({', '.join(map(_shown, structure))})"
    return repr(structure)
