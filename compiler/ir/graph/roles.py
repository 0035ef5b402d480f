"""Roles: what each input and output of a graph is, and `Program`, the graph together with its roles.

    Signature  := inputs: (InputRole, ...)  outputs: (OutputRole, ...)
    InputRole  := UserInput(index) | Parameter(index, name) | Buffer(index, name) | Shared(of, extent)
                | Tangent(of) | Saved(of) | Token(effect) | Seed() | Inner(of, path)
    OutputRole := UserOutput(index) | Mutation(of, kind, writes) | Base(index) | Size(of) | Gradient(of, through)
                | Saved(of) | Token(effect) | Inner(of, path) | Shown(of)

    Result     := the role that returns it | Same(index) | Input(of) | View(of, how, ...) | Constant(value)
    Effect     := Restride(of, how) | Detach(of) | Bump(of, by, less) | Written(of, by) | GradMode(enabled)
                | Inference() | Layout(of, strides, offset) | Warned(message, category, filename, line)
                | Begins(of, offset, divisor) | Freed() | Rebased(of) | Varies(index, dims) | Resized(of, nbytes, most)
                | Replaced(of, by, growth, is_data)

The calling convention, the write-back of mutations, the replay of aliases, the saved tensors and the gradients
are all read off the signature; nothing counts offsets. The index of a call input is its position in the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, slots=True)
class UserInput:
    """Leaf `index` of the flattened call arguments."""

    index: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A module parameter: leaf `index` of the call, and its qualified name."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A module buffer: leaf `index` of the call, and its qualified name."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory in which the call inputs `of` overlap, one of them being written: they are views of it in the graph.

    It is the tensor that autograd knows as their base; or, where autograd knows none, a flat tensor laid over the
    first `extent` elements from their lowest one on.
    """

    of: tuple[CallInput, ...]
    extent: int | None

    @property
    def index(self) -> int:
        """The first position of the call at which it is passed."""
        return self.of[0].index


@dataclass(frozen=True, slots=True)
class Tangent:
    """The incoming gradient of a forward output."""

    of: OutputRole


@dataclass(frozen=True, slots=True)
class Saved:
    """A value that forward keeps for backward, by its node's name; an output of forward, an input of backward."""

    of: str


@dataclass(frozen=True, slots=True)
class Token:
    """Orders effects of one kind; those of the backward part of a joint graph apart from forward's."""

    effect: str
    in_backward: bool = False


@dataclass(frozen=True, slots=True)
class Inner:
    """An inner tensor of a wrapper, by the names that lead to it: of an input, or of an output. What is built takes and
    returns no wrappers (`codegen/call/border.py`)."""

    of: InputRole | OutputRole
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seed:
    """What a call has reserved of the generator of random numbers, as an input: its seed, and where it stood."""


@dataclass(frozen=True, slots=True)
class UserOutput:
    """Leaf `index` of the flattened result."""

    index: int


@dataclass(frozen=True, slots=True)
class Mutation:
    """The value that input `of` has after the call, which was written in place `writes` times.

    `seen`: autograd saw the writes; `no_grad`: they were made where gradients are off; `hidden`: through `.data`,
    which leaves the version counter alone. The memory that inputs share has one value for all of them, if autograd saw
    all writes.
    """

    of: CallInput | Shared
    kind: Literal["seen", "no_grad", "hidden"]
    writes: int


@dataclass(frozen=True, slots=True)
class Base:
    """Intermediate number `index`, returned because user outputs are views of it."""

    index: int


@dataclass(frozen=True, slots=True)
class Size:
    """A symbolic integer that the replay of a view needs, by its node's name."""

    of: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A result, or an input whose strides are changed, as the graph computes it.

    It is there for whoever reads the graph: the call makes its results by their recipes, and drops this value.
    """

    of: UserOutput | CallInput


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an input, which follows from the tangents of the outputs `through`; None where none is given."""

    of: CallInput | Shared
    through: frozenset[OutputRole] = frozenset()


@dataclass(frozen=True, slots=True)
class Same:
    """The result is the very object that result `index` is."""

    index: int


@dataclass(frozen=True, slots=True)
class Input:
    """The result is the very object that was passed in."""

    of: CallInput


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One call of a view's chain: `target(value, *arguments)`, then `[item]` when it returns several tensors.

    The target "data" is the attribute: an alias like that of `detach`, but with a version of its own.
    """

    target: torch._ops.OpOverload | Literal["data"]
    arguments: tuple[object, ...]
    item: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The result is made after the graph has run, by replaying its view chain on `of`.

    `is_in_grad_mode`: where gradients are recorded, which autograd remembers of views whether or not any flow.
    `is_early`: before the inputs are written, because it was taken without gradients and autograd remembers that.
    """

    of: CallInput | Shared | UserOutput | Base | Same
    how: tuple[ViewStep, ...]
    is_in_grad_mode: bool
    is_early: bool = False

    @property
    def needs_sizes(self) -> bool:
        """Whether a step is told a size that the graph computes."""
        return any(isinstance(leaf, Size) for step in self.how for leaf in tree_leaves(step.arguments))


@dataclass(frozen=True, slots=True)
class Constant:
    """The result is this value on every call: None, a number, a string."""

    value: object


@dataclass(frozen=True, slots=True)
class Restride:
    """The shape or strides of an input are changed in place, by these calls on it."""

    of: CallInput
    how: tuple[ViewStep, ...]


@dataclass(frozen=True, slots=True)
class Detach:
    """An input is detached in place from what autograd knew of it."""

    of: CallInput


@dataclass(frozen=True, slots=True)
class GradMode:
    """Gradients are left switched on or off."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class Inference:
    """An output, or a view that is a result, is made in inference mode or outside of it, where the call is not made."""

    of: OutputRole
    is_on: bool


@dataclass(frozen=True, slots=True)
class Bump:
    """The version of an input grows by more than the writes of it that are seen, of which `less` are counted already.

    A view of it was written in its metadata, or an operator wrote it as often as it did.
    """

    of: CallInput
    by: int | Size
    less: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The graph itself writes an input, whose version grows by `by` more than those writes make it grow."""

    of: CallInput
    by: int


@dataclass(frozen=True, slots=True)
class Layout:
    """An output lies so in its memory: a write in place kept what the graph's own value does not have."""

    of: OutputRole
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Warned:
    """The program warns, from a line of its own."""

    message: str
    category: type[Warning]
    filename: str
    line: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Eager's graph of the call saves tensors, which a backward frees: to go back again without `retain_graph` raises,
    though our own backward may save none."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """Gradients lead from the value of an input after its writes to the one before by these writes alone. Of a view,
    they then lead to its base and to nothing that made the view of it."""

    of: CallInput


@dataclass(frozen=True, slots=True)
class Varies:
    """Result `index` has other sizes in other calls along these dimensions: Dynamo then takes them for symbols in the
    next graph that is given it."""

    index: int
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Begins:
    """The call is for an input that begins so many elements behind its storage; with a `divisor`, for one that begins
    so many behind a multiple of that."""

    of: CallInput
    offset: int
    divisor: int | None = None

    def holds(self, value: torch.Tensor) -> bool:
        """Whether an input begins so."""
        begins = value.storage_offset()
        return (begins if self.divisor is None else begins % self.divisor) == self.offset


@dataclass(frozen=True, slots=True)
class Resized:
    """The storage of an input has `nbytes` after the call. While the graph runs it has at least `most`, and if that is
    not 0, what the elements need."""

    of: CallInput
    nbytes: int | Size
    most: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """An input has the memory of another tensor after the call, made by `by`: by `set_`, or by assignment to `data`,
    which leaves the version alone. The version grows by `growth`."""

    of: CallInput
    by: Result
    growth: int
    is_data: bool


Effect: TypeAlias = (
    Restride
    | Detach
    | Bump
    | Written
    | GradMode
    | Inference
    | Layout
    | Warned
    | Begins
    | Freed
    | Rebased
    | Varies
    | Resized
    | Replaced
)
CallInput: TypeAlias = UserInput | Parameter | Buffer
InputRole: TypeAlias = CallInput | Shared | Tangent | Saved | Token | Seed | Inner
OutputRole: TypeAlias = UserOutput | Mutation | Base | Size | Gradient | Saved | Token | Inner | Shown
Result: TypeAlias = UserOutput | Size | Same | Input | View | Constant


@dataclass(frozen=True, slots=True)
class Signature:
    """The roles of a graph's placeholders and of its outputs, in their order, and how each result is made of them.

    `differentiable` are the outputs through which gradients flow; `effects` what a call does beside returning and
    writing values, in order.
    """

    inputs: tuple[InputRole, ...]
    outputs: tuple[OutputRole, ...]
    results: tuple[Result, ...] = ()
    differentiable: frozenset[OutputRole] = frozenset()
    effects: tuple[Effect, ...] = ()

    def memory_of(self, role: OutputRole) -> CallInput | None:
        """The input that is given the memory of an output, which no result is a view of."""
        if any(isinstance(made, View) and made.of == role for made in self.results):
            return None
        moved = (effect for effect in self.effects if isinstance(effect, Replaced) and isinstance(effect.by, View))
        return next((effect.of for effect in moved if effect.by.of == role), None)  # type: ignore[union-attr]

    @property
    def handed_on(self) -> tuple[OutputRole, ...]:
        """The outputs that a forward gives to its call: not what it saves, nor what it only shows."""
        return tuple(role for role in self.outputs if not isinstance(role, (Saved, Shown)))


GraphCall = Callable[[list[object]], Sequence[object]]
"""A compiled graph: takes its inputs as one list, which it empties, and returns its outputs."""


@dataclass(frozen=True, slots=True)
class Program:
    """A functional ATen graph and its roles. Every placeholder and value carries a fake tensor in `meta["val"]`.

    The graph's output node returns one flat list, in the order of `signature.outputs`.
    """

    module: torch.fx.GraphModule
    signature: Signature

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    @property
    def is_backward(self) -> bool:
        """Whether it takes tangents."""
        roles = (role.of if isinstance(role, Inner) else role for role in self.signature.inputs)
        return any(isinstance(role, Tangent) for role in roles)

    @property
    def values(self) -> dict[str, object]:
        """The fake value of each node, by its name."""
        return {node.name: node.meta.get("val") for node in self.module.graph.nodes}

    @property
    def returned(self) -> list[torch.fx.Node | int | None]:
        """What the graph returns, in the order of `signature.outputs`."""
        output = next(iter(reversed(self.module.graph.nodes)))
        return list(output.args[0])

    @property
    def handed_on(self) -> list[torch.fx.Node]:
        """The values that a forward gives to its call, in the order of `signature.handed_on`."""
        roles = {*self.signature.handed_on}
        pairs = zip(self.signature.outputs, self.returned, strict=True)
        return [node for role, node in pairs if role in roles and isinstance(node, torch.fx.Node)]

    @property
    def after_call(self) -> dict[str, str]:
        """The values that inputs hold after the call and nobody else gets, by name, each with its input. A kernel may
        write such a value over the input.

        There are none where autograd records the call, which then returns them. An input that shares its memory with
        others has none.
        """
        if self.signature.differentiable:
            return {}
        names = {role: node.name for role, node in zip(self.signature.inputs, self.placeholders, strict=True)}
        returned = Counter(self.returned)
        pairs = zip(self.signature.outputs, self.returned, strict=True)
        return {
            node.name: names[role.of]
            for role, node in pairs
            if isinstance(role, Mutation)
            and role.of in names
            and isinstance(node, torch.fx.Node)
            and returned[node] == 1
        }
