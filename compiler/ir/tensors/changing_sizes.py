"""For which tensors and numbers a trace holds: `Kind`, `Moving`, what of it may change, and `Examples`, what is traced.

first trace      every size is a number
second trace     the sizes that have changed since are symbols; the trace says what it assumes of them. Floats that
                 have changed are read from tensors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._sympy.printers import PythonPrinter

Given = Sequence[torch.Tensor | None]


def outline(value: torch.Tensor | None) -> object:
    """What of a tensor is never a symbol; None for none."""
    if value is None:
        return None
    if value.layout is not torch.strided:
        return type(value), value.layout, value.dtype, value.device
    return type(value), value.dim(), value.dtype, value.device, torch._C._dispatch_keys(value).raw_repr()


def layout(value: torch.Tensor | None) -> tuple[object, ...]:
    """The sizes and strides of a tensor, and where it begins."""
    if value is None or value.layout is not torch.strided:
        return ()
    return (value.shape, value.stride())


@dataclass(frozen=True, slots=True)
class Kind:
    """The tensors and numbers of one call of what is traced."""

    outlines: tuple[object, ...]
    layouts: tuple[tuple[Any, ...], ...]
    numbers: tuple[float, ...]

    @staticmethod
    def of(given: Given, numbers: tuple[float, ...]) -> Kind:
        return Kind(tuple(map(outline, given)), tuple(map(layout, given)), numbers)

    def is_alike(self, other: Kind) -> bool:
        """Whether the two differ in sizes and numbers alone."""
        same = [type(number) for number in self.numbers] == [type(number) for number in other.numbers]
        return self.outlines == other.outlines and same


@dataclass(frozen=True, slots=True)
class Moving:
    """The dimensions of each tensor, and the numbers, that have changed since an earlier trace."""

    dims: tuple[frozenset[int], ...]
    numbers: frozenset[int]

    @staticmethod
    def between(now: Kind, before: Sequence[Kind]) -> Moving | None:
        """What differs from any of the kinds before that are alike; None where there is none of these."""
        alike = [kind for kind in before if kind.is_alike(now)]
        if not alike:
            return None
        dims = tuple(
            frozenset(
                dim for kind in alike for dim in _differing(mine[0], kind.layouts[place][0]) if mine
            ) if mine else frozenset[int]()
            for place, mine in enumerate(now.layouts)
        )  # fmt: skip
        return Moving(dims, frozenset(n for kind in alike for n in _differing(now.numbers, kind.numbers)))

    def __or__(self, other: Moving) -> Moving:
        """What either says."""
        dims = tuple(mine | theirs for mine, theirs in zip(self.dims, other.dims, strict=True))
        return Moving(dims, self.numbers | other.numbers)


def _differing(mine: Sequence[object], other: Sequence[object]) -> Iterator[int]:
    return (n for n, (one, two) in enumerate(zip(mine, other, strict=True)) if one != two)


@dataclass(slots=True)
class Assumed:
    """What a trace assumes of symbolic sizes, as a Python function of tensors and numbers.

    `places` are the sizes, strides and numbers that hold symbols, each as an expression of the call and its value.
    """

    env: ShapeEnv
    places: list[tuple[str, Any]] = field(default_factory=list)

    def add_tensor(self, position: int, fake: torch.Tensor) -> None:
        for name, values in (("shape", fake.shape), ("stride()", fake.stride())):
            for dim, value in enumerate(values):
                self.places.append((f"given[{position}].{name}[{dim}]", value))

    def add_number(self, position: int, value: object) -> None:
        self.places.append((f"numbers[{position}]", value))

    def test(self) -> Callable[[Given, Sequence[float]], bool]:
        """Whether the trace holds for tensors and numbers of the same outlines."""
        sources: dict[sympy.Symbol, str] = {}
        for text, value in self.places:
            expression = _expression(value)
            if isinstance(expression, sympy.Symbol):
                sources.setdefault(expression, text)
        names = {symbol: f"size_{index}" for index, symbol in enumerate(sources)}
        printed = _Printer(names)
        tests = [f"{text} == {printed.doprint(_expression(value))}" for text, value in self.places]
        tests += [printed.doprint(guard.expr) for guard in self.env.guards if guard.expr.free_symbols <= names.keys()]
        tests += [test for symbol in names for test in self._range(symbol, names[symbol])]
        bound = [f"    {names[symbol]} = {text}" for symbol, text in sources.items()]
        lines = [
            "import math",
            "import torch",
            "def holds(given, numbers):",
            *bound,
            f"    return {' and '.join(tests) or 'True'}",
        ]
        namespace: dict[str, Any] = {}
        exec("\n".join(lines), namespace)
        holds: Callable[[Given, Sequence[float]], bool] = namespace["holds"]
        return holds

    def _range(self, symbol: sympy.Symbol, name: str) -> Iterator[str]:
        """Of a size a trace takes for granted that it is neither 0 nor 1."""
        known = self.env.var_to_range[symbol]
        if known.lower.is_Integer:
            yield f"{known.lower} <= {name}"
        if known.upper.is_Integer:
            yield f"{name} <= {known.upper}"


def without_real_base(value: torch.Tensor) -> torch.Tensor:
    """The tensor, or where it is complex and a view of real numbers, one over the same memory that is no view: torch
    cannot make a fake tensor of such a view."""
    if isinstance(value, FakeTensor) or value._base is None or value.is_complex() == value._base.is_complex():
        return value
    return alone(value).requires_grad_(value.requires_grad)


def alone(value: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory, read alike, that is no view of any and of which autograd knows nothing."""
    made = torch.empty(0, dtype=value.dtype, device=value.device)
    made.set_(value.untyped_storage(), value.storage_offset(), value.size(), value.stride())
    made = torch.conj(made) if value.is_conj() else made
    return torch._neg_view(made) if value.is_neg() else made


class Numbers(ShapeEnv):
    """An environment in which no number is greater than itself, as torch has it of floats.

    Source: suites/upstream_bugs/float_is_greater_than_itself.py
    """

    def evaluate_sym_node(self, sym_node: SymNode, *args: Any, **kwargs: Any) -> Any:
        compared = sym_node.expr
        if isinstance(compared, sympy.StrictGreaterThan | sympy.StrictLessThan) and compared.lhs == compared.rhs:
            return False
        return super().evaluate_sym_node(sym_node, *args, **kwargs)


@dataclass(slots=True)
class Examples:
    """Fake tensors and symbols like the arguments of a call. What is `moving` is symbolic, and noted in `assumed`; all
    else is constant."""

    moving: Moving | None
    env: ShapeEnv | None
    mode: FakeTensorMode
    assumed: Assumed | None

    @staticmethod
    def of(moving: Moving | None, reads_numbers: bool = False) -> Examples:
        """Where nothing moves the mode has an environment only if numbers may be read out of tensors."""
        env = Numbers() if moving is not None or reads_numbers else None
        mode = FakeTensorMode(shape_env=env)
        if moving is None or env is None:
            return Examples(None, None, mode, None)
        return Examples(moving, env, mode, Assumed(env))

    def tensor(self, place: int, value: torch.Tensor) -> torch.Tensor:
        """A fake tensor like a real one, which is the tensor at this place."""
        value = without_real_base(value)
        if self.moving is None or self.assumed is None:
            return self.mode.from_tensor(value, static_shapes=True)
        sizes = [DimDynamic.DUCK if dim in self.moving.dims[place] else DimDynamic.STATIC for dim in range(value.dim())]
        context = StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=[None] * value.dim())  # type: ignore[var-annotated]
        source = ConstantSource(f"input_{place}")
        fake = self.mode.from_tensor(value, source=source, symbolic_context=context)
        self.assumed.add_tensor(place, fake)
        return fake

    def number(self, place: int, number: Any) -> Any:
        """The number at this place: an integer that moves is a size, of which 0 and 1 are constants, or a place counted
        from the end; a float that moves is a tensor that it is read from."""
        if self.env is None or self.moving is None or self.assumed is None:
            return number
        if type(number) is float and place in self.moving.numbers:
            return self.mode.from_tensor(as_data(number))
        if number < 0:
            return self.integer(place, number)
        if place in self.moving.numbers and number > 1:
            source = ConstantSource(f"number_{place}")
            expression = self.env.create_symbol(number, source, DimDynamic.DUCK)
            number = self.env.create_symintnode(expression, hint=number, source=source)
        self.assumed.add_number(place, number)
        return number

    def integer(self, place: int, number: int) -> int | torch.SymInt:
        """The integer at this place, of any sign and value."""
        if self.env is None or self.moving is None or self.assumed is None or place not in self.moving.numbers:
            if self.assumed is not None:
                self.assumed.add_number(place, number)
            return number
        source = ConstantSource(f"number_{place}")
        expression = self.env.create_unspecified_symbol(number, source, DimDynamic.DYNAMIC)
        symbol = self.env.create_symintnode(expression, hint=number, source=source)
        self.assumed.add_number(place, symbol)
        return symbol


def as_data(number: float) -> torch.Tensor:
    """A float as what is compiled for any float takes it: a tensor of no dimensions, of float64."""
    return torch.tensor(number, dtype=torch.float64)


def _expression(value: Any) -> sympy.Expr:
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.sympify(value)


class _Printer(PythonPrinter):
    def __init__(self, names: Mapping[sympy.Symbol, str]) -> None:
        super().__init__()
        self.names = names

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self.names.get(expr, str(expr))
