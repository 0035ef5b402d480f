"""The operator records: one `Op` a target, and the table of them all.

A rule takes an `Operation` (one call, its arguments by their schema names) and gives the elements of each output, or
a `View`. It raises `Declined` where it is not certain to do what eager does: the call then stays a call to ATen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int
from assay.compiler.ir.loops.kernel import AsValue, CallAten, Element, Expr, Mode
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import constant, convert

WIDE = torch.float64


class Kind(Enum):
    """What an operator does to the elements of its inputs. Partitioner, fuser and cost model read nothing else."""

    pointwise = "pointwise"
    reduction = "reduction"
    scan = "scan"
    view = "view"
    indexing = "indexing"
    contraction = "contraction"
    creation = "creation"
    random = "random"
    composite = "composite"
    effect = "effect"


class Declined(Exception):
    """This call has no lowering; ATen runs it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an operator.

    `arguments` holds a `Tensor` for a tensor, an `Index` for a symbolic size, and constants. `fakes` are the
    positional arguments as they were traced, for type promotion. `filled` are the arguments that are one number in all
    elements, which a kernel that reads them needs no memory for. `symbolic` are the integers among the arguments, as
    they were traced: what their guards say is known. `orders_equals`: elements that it puts in order are often equal.
    """

    name: str
    arguments: Mapping[str, Any]
    outputs: tuple[Tensor | None, ...]
    fakes: tuple[Any, ...]
    filled: frozenset[str] = frozenset()
    symbolic: Mapping[str, torch.SymInt] = field(default_factory=dict)
    orders_equals: bool = False

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def output(self) -> Tensor:
        """The first output that anyone uses."""
        return next(output for output in self.outputs if output is not None)

    @property
    def is_complex(self) -> bool:
        """Whether the call takes or gives complex numbers."""
        found = (*pytree.tree_leaves(self.arguments), *self.outputs)
        return any(isinstance(tensor, Tensor) and tensor.dtype.is_complex for tensor in found)

    def tensor(self, name: str) -> Tensor:
        """Argument `name`, a tensor. Raises: Declined when it is None or something else."""
        value = self.arguments[name]
        if not isinstance(value, Tensor):
            raise Declined(f"{name} is not a tensor")
        return value

    def number(self, name: str) -> bool | int | float:
        """Argument `name`, a constant. Raises: Declined when it is anything else."""
        value = self.arguments[name]
        if not isinstance(value, bool | int | float):
            raise Declined(f"{name} is not a constant")
        return value

    def is_negative(self, name: str) -> bool:
        """Whether the integer argument `name` is below 0, which is to hold for each call.

        Raises: Declined where a call may be given either.
        """
        number = self.symbolic.get(name, self.arguments[name])
        if statically_known_true(number >= 0):
            return False
        if statically_known_true(number < 0):
            return True
        raise Declined(f"{name} is an integer of either sign")

    def needs_room(self, name: str) -> None:
        """Raises: Declined where the dtype of the output may not hold number `name`, which eager refuses then."""
        number, dtype = self.symbolic.get(name, self.arguments.get(name)), self.output.dtype
        if isinstance(number, bool | int | float | complex | torch.SymInt) and not may_hold(dtype, number):
            raise Declined(f"{name} is a number that {dtype} may not hold")

    def value(self, name: str, dtype: torch.dtype) -> Expr:
        """Argument `name` at the coordinates of the output, as `dtype`."""
        return value_of(self.arguments[name], self.output.shape, dtype)

    def rounded(self, name: str, dtype: torch.dtype, common: torch.dtype | None = None) -> Expr:
        """The same where eager's kernel takes a number, or a tensor of another dtype, as one of the output's dtype, or
        of the `common` one."""
        number, narrow = self.arguments[name], common or self.output.dtype
        if narrow in (dtype, getattr(number, "dtype", None)):
            return self.value(name, dtype)
        number = number.value if isinstance(number, Int) else number
        if isinstance(number, bool | int | float):
            return constant(torch.tensor(float(number), dtype=WIDE).to(narrow).to(WIDE).item(), dtype)
        return convert(self.value(name, narrow), dtype)

    def taken(self, name: str, dtype: torch.dtype, common: torch.dtype | None = None) -> Expr:
        """The same in fractions on a CPU, where eager first has all operands in one dtype: `common`, by default that
        of the output. A GPU of eager's reads a number as it is."""
        common = common or self.output.dtype
        is_rounded = self.output.device.type == "cpu" and common.is_floating_point
        return self.rounded(name, dtype, common) if is_rounded else self.value(name, dtype)


@dataclass(frozen=True, slots=True)
class View:
    """One output that is a view: its elements' coordinates in the base, and another call that makes it, if any."""

    base: Tensor
    at: tuple[Index, ...]
    call: CallAten | None = None
    is_conjugate: bool = False


@dataclass(frozen=True, slots=True)
class Scatter:
    """One output that is `initial`, updated at places that are data: see `Scattered`."""

    initial: Expr | Scatter
    over: tuple[Index, ...]
    at: tuple[Index, ...]
    update: Expr
    mode: Mode


Result: TypeAlias = "tuple[Expr | View | Scatter | None, ...]"
Rule: TypeAlias = Callable[[Operation], Result]


@dataclass(frozen=True, slots=True)
class Op:
    """What is known of one operator. `rule` is None where ATen always runs it; calls that take or give complex numbers
    have rules of their own (`complex_numbers.rule_of`)."""

    target: str
    kind: Kind
    rule: Rule | None


OPERATORS: dict[str, Op] = {}


def record(kind: Kind, rule: Rule | None, *targets: str) -> None:
    """Adds the record of each target, written `add.Tensor` for `aten.add.Tensor`."""
    for target in targets:
        name = name_of_target(target)
        OPERATORS[name] = Op(name, kind, rule)


def name_of_target(target: str) -> str:
    """The name that an operator is recorded under."""
    name = target if target.startswith(("prims.", "mkldnn.", "assay.")) else f"aten.{target}"
    return name.removesuffix(".default")


def rule(kind: Kind, *targets: str) -> Callable[[Rule], Rule]:
    """Declares a function as the rule of its targets."""

    def declare(function: Rule) -> Rule:
        record(kind, function, *targets)
        return function

    return declare


def broadcast(tensor: Tensor, shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates of `tensor` at the coordinates of a tensor of `shape` that it is broadcast to."""
    own = coordinates(len(shape))[len(shape) - len(tensor.shape) :]
    return tuple(ZERO if extent is ONE else d for extent, d in zip(tensor.shape, own, strict=True))


def element(tensor: Tensor, at: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """`tensor[at]` as `dtype`."""
    return convert(Element(tensor.name, at, tensor.dtype), dtype)


def may_hold(dtype: torch.dtype, number: complex | torch.SymInt) -> bool:
    """Whether eager takes a number as an element of that dtype, in each call. Infinities and NaN are numbers of
    floating point, and a negative number wraps round in a dtype without signs."""
    if isinstance(number, complex):
        return may_hold(dtype, number.real) and may_hold(dtype, number.imag)
    real = dtype.to_real() if dtype.is_complex else dtype
    if real is torch.bool:
        return True
    if isinstance(number, float) and not math.isfinite(number):
        return real.is_floating_point
    limits = torch.finfo(real) if real.is_floating_point else torch.iinfo(real)
    least = limits.min if limits.min < 0 else -limits.max
    return statically_known_true(number >= least) and statically_known_true(number <= limits.max)


def value_of(value: object, shape: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """A tensor (broadcast to `shape`), a size or a number as `dtype`."""
    if isinstance(value, Tensor):
        return element(value, broadcast(value, shape), dtype)
    if isinstance(value, bool | int | float):
        return constant(value, dtype) if dtype.is_floating_point or isinstance(value, int) else _declined(value)
    return number_of(value, dtype) if isinstance(value, Index) else _declined(value)


def number_of(index: Index, dtype: torch.dtype) -> Expr:
    """A size as a number."""
    return constant(index.value, dtype) if isinstance(index, Int) else AsValue(index, dtype)


def _declined(value: object) -> Expr:
    raise Declined(f"operand {value!r}")
