"""What stands for numbers and tensors while the engine is recorded: objects that only say which value they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.compiler.ir.graph.backward.engine_steps import Computed, Scalar, Size
from assay.compiler.torch_stubs import empty_strided_cpu


def stand_in() -> torch.Tensor:
    """A tensor of no elements. Cost: 0.4 us."""
    made: torch.Tensor = empty_strided_cpu((0,), (1,), torch.float32)
    return made


class Number:
    """What torch holds for a symbolic number. Who computes with it gets another one. Who asks for its value gets the
    one of this recording, and `asked` is told."""

    def __init__(self, role: object, value: float, asked: Callable[[object, float], None]) -> None:
        self.role, self.value, self.asked = role, value, asked

    def is_int(self) -> bool:
        return type(self.value) is int

    def is_float(self) -> bool:
        return type(self.value) is float

    def is_bool(self) -> bool:
        return type(self.value) is bool

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return isinstance(self.role, (Size, Scalar, Computed))

    def is_constant(self) -> bool:
        return not self.is_symbolic()

    def has_hint(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return int(self.value) if self.is_constant() and self.is_int() else None

    def maybe_as_float(self) -> float | None:
        return float(self.value) if self.is_constant() and self.is_float() else None

    def maybe_as_bool(self) -> bool | None:
        return bool(self.value) if self.is_constant() and self.is_bool() else None

    def wrap_int(self, value: int) -> Number:
        return Number(value, value, self.asked)

    wrap_float = wrap_bool = wrap_int

    def answer(self, *_: object) -> Any:
        """The number itself, which whoever asks goes by from here on."""
        if self.is_symbolic():
            self.asked(self.role, self.value)
        return self.value

    guard_int = guard_float = guard_bool = guard_size_oblivious = expect_true = guard_or_false = guard_or_true = answer
    int_ = bool_ = answer

    def __str__(self) -> str:
        return f"{self.role}={self.value}"

    _graph_repr = __str__


def _computing(function: Callable[..., Any]) -> Callable[..., Number]:
    def compute(*numbers: Number) -> Number:
        value, first = function(*(number.value for number in numbers)), numbers[0]
        if all(number.is_constant() for number in numbers):
            return Number(value, value, first.asked)
        return Number(Computed(function, tuple(number.role for number in numbers)), value, first.asked)

    return compute


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in "add sub mul truediv mod eq ne lt le gt ge neg pow".split()},
    "int_truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv,
    "sym_min": min,
    "sym_max": max,
    "sym_and": operator.and_,
    "sym_or": operator.or_,
    "and_": operator.and_,
    "or_": operator.or_,
    "sym_not": operator.not_,
    "sym_float": float,
    "ceil": math.ceil,
    "floor": math.floor,
}
for _name, _function in OPERATIONS.items():
    setattr(Number, _name, _computing(_function))


def symbol(role: object, value: float, asked: Callable[[object, float], None]) -> torch.SymInt | torch.SymFloat:
    """A number that stands for the one of that role."""
    return (torch.SymFloat if isinstance(value, float) else torch.SymInt)(Number(role, value, asked))


class Between(TorchDispatchMode):
    """Hands to `record` each operator that the engine itself calls while it is recorded, as it does to fill in zeros
    for a gradient that is missing."""

    def __init__(self, record: Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.record(func, args, kwargs or {})
