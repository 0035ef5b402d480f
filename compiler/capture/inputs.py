"""A call's inputs: real values to fake ones, and the check that later inputs are like them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import sympy
import torch
from torch._guards import Source, TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from assay.compiler.capture.user_code.script_objects import fake_object, is_object
from assay.compiler.errors import InputMismatch, Unsupported, WrongCount
from assay.compiler.ir.graph.roles import CallInput, GraphCall
from assay.compiler.ir.tensors.changing_sizes import without_real_base
from assay.compiler.ir.tensors.layout.overlap import is_leaf, overlaps, share_inner
from assay.compiler.ir.tensors.layout.strides import extent, has_symbols, number_at
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensors, is_wrapper

Leaf = torch.Tensor | torch.SymInt | int


@dataclass(frozen=True, slots=True)
class CallLeaf:
    """One tensor or integer of a call, by its role; `fake` is what the recording sees in its place."""

    role: CallInput
    fake: Leaf
    requires_grad: bool
    is_leaf: bool
    is_inference: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call to record: `function` takes the leaves as one flat list and returns its results as one flat list.

    `constants` are what it was given beside the leaves; None where whoever made the graph has seen to it that it refers
    to no other objects.

    `overlaps` are groups of leaves (by position) that overlap in memory and are recorded as views of what they share:
    a call that is specialised to them is compiled for no other.

    `unguarded` are the positions of tensors of which whoever calls may not notice that they are others later. `current`
    is the GPU that is the current one, where the call makes something there. `nodes` is how many nodes run in eager
    where the call does. `pieces` makes of the call, for leaves for which the compiler refuses it with this reason, one
    in pieces; None where all of it is for eager. `names` are what the graph calls the leaves; by default it calls them
    by their roles. With `holds_functions` operators that take functions are nodes of the graph, as `cond` and `scan`
    are; else such a program is refused. With `shows_results` the graph also returns the results that the call makes of
    inputs and of other results. `inlined` is the function without calls of regions; None where there are none.
    """

    function: Callable[[list[object]], Sequence[object]]
    leaves: tuple[CallLeaf, ...]
    fake_mode: FakeTensorMode
    overlaps: tuple[tuple[int, ...], ...] = ()
    is_specialized: bool = False
    constants: tuple[object, ...] | None = None
    unguarded: tuple[int, ...] = ()
    current: int | None = None
    nodes: int = 1
    pieces: Callable[[Unsupported, Sequence[object]], GraphCall | None] | None = None
    names: tuple[str, ...] = ()
    holds_functions: bool = False
    shows_results: bool = False
    inlined: Callable[[list[object]], Sequence[object]] | None = None

    def eager(self, leaves: list[object]) -> Sequence[object]:
        """The call itself, uncompiled."""
        return (self.inlined or self.function)(leaves)

    def without_regions(self) -> Call:
        """The same call, its regions recorded as if they stood there."""
        return self if self.inlined is None else replace(self, function=self.inlined, inlined=None)

    def frozen(self) -> tuple[int, ...]:
        """The positions of tensors that require no grad, where whoever calls may not notice that they do later."""
        fakes = {position: leaf.fake for position, leaf in enumerate(self.leaves) if not leaf.requires_grad}
        can = {position for position, fake in fakes.items() if _can_require_grad(fake)}
        return tuple(position for position in self.unguarded if position in can)

    def sizes(self) -> dict[sympy.Symbol, tuple[int, int | None]]:
        """Where the call is given each of its symbolic sizes: as the leaf of a position, or as one of its dimensions.

        Those that it is given only as part of another are not among them.
        """
        found: dict[sympy.Symbol, tuple[int, int | None]] = {}
        for position, leaf in enumerate(self.leaves):
            given = leaf.fake.shape if isinstance(leaf.fake, torch.Tensor) else (leaf.fake,)
            for dim, size in enumerate(given):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    found.setdefault(size.node.expr, (position, None if size is leaf.fake else dim))
        return found

    def at(self, sizes: Mapping[sympy.Symbol, int]) -> Call:
        """The same call with these numbers for its symbolic sizes.

        Raises: Unsupported where a size is among none of them.
        """
        leaves = (replace(leaf, fake=_fake_at(leaf.fake, sizes, self.fake_mode)) for leaf in self.leaves)
        return replace(self, leaves=tuple(leaves))

    def specialized(self, values: Sequence[object], versions: bool) -> Call:
        """The same call for leaves whose sizes are these numbers and whose overlaps are these (`versions` as there)."""
        fake_mode = FakeTensorMode()
        if share_inner(values):
            raise Unsupported("an inner tensor of an input shares its memory with another input")
        pairs = zip(self.leaves, values, strict=True)
        leaves = tuple(fake_leaf(leaf.role, value, fake_mode) for leaf, value in pairs)
        groups = overlaps(values, versions)
        return replace(
            self, leaves=leaves, fake_mode=fake_mode, overlaps=groups, is_specialized=True, unguarded=(), pieces=None
        )


def _can_require_grad(fake: Leaf) -> bool:
    return isinstance(fake, torch.Tensor) and (fake.is_floating_point() or fake.is_complex())


def fake_leaf(
    role: CallInput,
    value: object,
    fake_mode: FakeTensorMode,
    source: Source | None = None,
    is_fixed: bool = False,
) -> CallLeaf:
    """What the recording sees of one input. With Dynamo's `source` its symbolic sizes are Dynamo's own. The sizes of a
    real tensor that `is_fixed` are numbers.

    Raises: Unsupported for layouts and subclasses that the compiler does not take apart yet.
    """
    if not isinstance(value, torch.Tensor):
        fake = fake_object(value, fake_mode) if is_object(value) else value
        return CallLeaf(role, cast(Leaf, fake), False, True)
    if is_wrapper(value) and any(isinstance(inner, FakeTensor) for inner in inner_tensors(value)):
        if not all(isinstance(inner, FakeTensor) and inner.fake_mode is fake_mode for inner in inner_tensors(value)):
            raise Unsupported(f"input {role} has inner tensors that are fake in another mode")
        return CallLeaf(role, value, value.requires_grad, value.is_leaf, value.is_inference())
    if isinstance(value, FakeTensor):
        fake = value if value.fake_mode is fake_mode else fake_mode.from_tensor(value, source=source)
        return CallLeaf(role, fake, value.requires_grad, value.is_leaf, value.is_inference())
    if value._is_zerotensor():
        raise Unsupported(f"input {role} is a tensor of zeros that has no memory")
    if value.layout is torch.jagged and fake_mode.shape_env is None:
        raise Unsupported(f"input {role} is a jagged tensor where no size is a symbol")
    if value.layout is not torch.strided and not is_wrapper(value):
        raise Unsupported(f"input {role} has layout {value.layout}: only strided tensors are compiled")
    try:
        has_no_history = value.is_leaf
    except RuntimeError as refusal:
        raise Unsupported(f"autograd refuses to say where input {role} comes from: {refusal}") from refusal
    context = TracingContext.try_get()
    known = context.tensor_to_context.get(value) if context is not None else None
    shown = without_real_base(value)
    if is_fixed:
        fake = fake_mode.from_tensor(shown, static_shapes=True)
    else:
        fake = fake_mode.from_tensor(shown, symbolic_context=known, source=source)
    if is_wrapper(value) and type(fake) is not type(value):
        raise Unsupported(f"a {type(value).__qualname__} is put together as a {type(fake).__qualname__}")
    return CallLeaf(role, fake, value.requires_grad, has_no_history, value.is_inference())


def _fake_at(fake: Leaf, sizes: Mapping[sympy.Symbol, int], fake_mode: FakeTensorMode) -> Leaf:
    def number(size: int | torch.SymInt) -> int:
        found = number_at(size, sizes)
        if found is None:
            raise Unsupported(f"the size {size} of an input is not known where it is needed")
        return found

    if not isinstance(fake, torch.Tensor):
        return number(fake)
    if not has_symbols(fake):
        return fake
    shape, strides = tuple(map(number, fake.shape)), tuple(map(number, fake.stride()))
    offset = number(fake.storage_offset())
    rest = number_at(fake.untyped_storage().nbytes(), sizes)  # a view may leave the tensor for the rest of its storage
    reach = max(offset + extent(shape, strides), (rest or 0) // fake.element_size())
    with fake_mode, torch.inference_mode(fake.is_inference()), torch.no_grad():
        memory = torch.empty(max(reach, 0), dtype=fake.dtype, device=fake.device).untyped_storage()
        made = torch.empty(0, dtype=fake.dtype, device=fake.device)
        made = made.set_(memory, offset, shape, strides)
        made = torch.conj(made) if fake.is_conj() else made
        return torch._neg_view(made) if fake.is_neg() else made


def held(module: torch.nn.Module, node: torch.fx.Node) -> object:
    """What a `get_attr` node of a graph module refers to."""
    return functools.reduce(getattr, str(node.target).split("."), module)


def fake_mode_of(values: Iterable[object]) -> FakeTensorMode | None:
    """The mode of the first fake tensor among some values; those of other modes are made anew in it."""
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


def check_inputs(expected: Sequence[object], given: Sequence[object]) -> None:
    """Holds a call's inputs to the fakes that a graph was compiled for; symbolic sizes take any value.

    Raises: InputMismatch naming the first input that differs, with what was expected and what was given; WrongCount
    for another number of them.
    """
    if len(expected) != len(given):
        raise WrongCount(f"the graph was compiled for {len(expected)} inputs and was called with {len(given)}")
    for position, (want, got) in enumerate(zip(expected, given, strict=True)):
        if wrong := _difference(want, got) if isinstance(want, torch.Tensor) else _other_number(want, got):
            raise InputMismatch(
                f"input {position} {wrong}; compile the graph for such inputs, or call it through torch.compile, "
                "which compiles again when inputs change"
            )


def _difference(want: torch.Tensor, got: object) -> str:
    if not isinstance(got, torch.Tensor):
        return f"is a {type(got).__name__} where the graph was compiled for a tensor"
    for name in ("dtype", "device"):
        if getattr(want, name) != getattr(got, name):
            return f"has {name} {getattr(got, name)} where the graph was compiled for {getattr(want, name)}"
    sizes = (("shape", want.shape, got.shape),)
    strides = (("strides", want.stride(), got.stride()),) if got.layout is torch.strided else ()
    for name, wanted, actual in (*sizes, *strides):
        if len(wanted) != len(actual) or not all(_fits(w, a) for w, a in zip(wanted, actual, strict=True)):
            return f"has {name} {tuple(actual)} where the graph was compiled for {tuple(wanted)}"
    return ""


def _other_number(want: object, got: object) -> str:
    """How an integer differs from what the graph was compiled for: from a constant, or from the range that its guards
    leave to a symbol."""
    if type(want) is int and type(got) is int and want != got:
        return f"is {got} where the graph was compiled for {want}"
    if not isinstance(want, torch.SymInt) or type(got) is not int:
        return ""
    known = want.node.shape_env.bound_sympy(want.node.expr)
    is_within = known.lower <= got <= known.upper
    return "" if is_within else f"is {got} where the graph was compiled for {known.lower} to {known.upper}"


def _fits(want: int | torch.SymInt, got: int) -> bool:
    return isinstance(want, torch.SymInt) or want == got


NONE: Mapping[int, torch.Tensor] = {}


def why_not_read(values: Iterable[object], wrappers: Mapping[int, torch.Tensor] = NONE) -> str:
    """Why no kernel can read some values, as they are no tensors with strides over memory of their own; "" if it can.

    At the positions of `wrappers`, for which a graph was compiled, it reads such wrappers. Cost: 0.2 us a tensor.
    """
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            continue
        if position in wrappers:
            if not is_made_as(wrappers[position], value):
                return f"input {position} is another {type(value).__name__} than the graph was compiled for"
            continue
        if type(value) not in PLAIN:
            return f"input {position} is a {type(value).__name__} where the graph was compiled for a plain tensor"
        if value.layout is not torch.strided:
            return f"input {position} has layout {value.layout} where the graph was compiled for strides"
        if value._is_zerotensor():
            return f"input {position} is a zero without memory where the graph was compiled for a plain tensor"
    return ""


PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The types of tensors that lie in memory as their strides say."""


def is_made_as(fake: object, value: torch.Tensor) -> bool:
    """Whether a wrapper is one like that which a graph was compiled for: of its class and context, around inner tensors
    that lie as those do."""
    if not is_wrapper(fake) or not (recipe := Recipe.of(fake)).makes(value):
        return False
    pairs = [(getattr(fake, name), getattr(value, name)) for name in recipe.names]
    return all(
        is_made_as(want, got) if is_wrapper(want) else not (_difference(want, got) or why_not_read([got]))
        for want, got in pairs
    ) and has_same_bits(*zip(*pairs, strict=True))


def has_same_bits(fakes: Iterable[object], given: Iterable[object]) -> bool:
    """Whether tensors are lazily conjugated or negated where those are that a graph was compiled for."""
    return all(
        (want.is_conj(), want.is_neg()) == (got.is_conj(), got.is_neg())
        for want, got in zip(fakes, given, strict=True)
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor)
    )


def has_same_history(leaves: Iterable[CallLeaf], given: Iterable[object]) -> bool:
    """Whether autograd takes tensors for what it took those that a call was recorded with."""
    return all(
        (leaf.requires_grad, leaf.is_inference) == (got.requires_grad, got.is_inference())
        and (not leaf.requires_grad or leaf.is_leaf == is_leaf(got))
        for leaf, got in zip(leaves, given, strict=True)
        if isinstance(got, torch.Tensor)
    )
