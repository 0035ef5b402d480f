"""What an operation sees while it is drawn: the live tensors with their true metadata, and the choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.suites.programs.choices import Choices
from assay.suites.programs.program import KINDS

Where = Callable[[Tensor], bool]
SCALARS = ("0", "1", "2", "-1", "0.5", "-0.0", "3")
WHOLE_SCALARS = ("0", "1", "2", "-1", "3")


KINDS_FOR = {
    "position": ("position", "position", "size"),
    "size": ("size",),
    "factor": ("factor", "factor", "whole", "position", "size", "flag"),
    "whole": ("whole", "position", "size"),
    "flag": ("flag",),
}
"""What a number is used as, with the kinds of numbers that may be."""
WHOLE_FORMS = ("(NUMBER + 1)", "(NUMBER - 1)", "(-NUMBER)", "(NUMBER // 2)", "(NUMBER % 3)", "(NUMBER * 2)")
FORMS = {
    "position": (*WHOLE_FORMS, "max(NUMBER, 0)", "min(NUMBER, 3)", "abs(NUMBER)"),
    "size": ("(NUMBER + 1)", "(NUMBER - 1)", "(NUMBER // 2)", "(NUMBER % 3)", "max(NUMBER, 1)"),
    "whole": (*WHOLE_FORMS, "(NUMBER / 2)", "(NUMBER * 0.5)", "float(NUMBER)"),
    "factor": (
        "(NUMBER + 1)",
        "(-NUMBER)",
        "(NUMBER * 2)",
        "(1 - NUMBER)",
        "(NUMBER / 3)",
        "abs(NUMBER)",
        "(NUMBER**2)",
    ),
    "flag": ("(not NUMBER)", "int(NUMBER)"),
}
"""Arithmetic with a number, by its kind."""


class NoOperand(LookupError):
    """No live tensor is such as the operation needs, or no number."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """An operation as drawn: its text with slots, the tensors in them, how many names it binds (0: a statement)."""

    template: str
    args: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws operands and literals. `live` are the program's tensors by name; `inputs` and `numbers` are the names of
    its inputs and numbers."""

    choices: Choices
    live: dict[str, Tensor]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Tensor:
        return self.live[name]

    def tensor(self, where: Where = lambda tensor: True) -> str:
        """A live tensor; an input and the result of a step are about equally likely. Raises: NoOperand."""
        found = [name for name, tensor in self.live.items() if where(tensor)]
        if not found:
            raise NoOperand
        given = [name for name in found if name in self.inputs]
        made = [name for name in found if name not in self.inputs]
        if given and made:
            found = made if self.choices.chance(55) else given
        return self.choices.pick(found)

    def fitting(self, target: str, where: Where = lambda tensor: True) -> str:
        """A live tensor that can be broadcast to the target's shape. Raises: NoOperand."""
        shape = self[target].shape
        return self.tensor(lambda tensor: where(tensor) and is_expandable(tensor.shape, shape))

    def operand(self, target: str) -> Drawn:
        """A tensor that broadcasts with the target, or a number, as text with a slot that follows the target's."""
        shape = self[target].shape
        if self.choices.chance(65):
            other = self.tensor(lambda tensor: _broadcasts(tensor.shape, shape))
            return Drawn("{1}", (target, other))
        return Drawn(self.scalar(target), (target,))

    def scalar(self, target: str) -> str:
        """A number that the target's dtype holds."""
        return self.choices.pick(SCALARS if has_fractions(self[target]) else WHOLE_SCALARS)

    def number(self, use: str) -> str:
        """A number of the program that may be used so, or arithmetic with it, as text. Raises: NoOperand."""
        kinds = KINDS_FOR[use]
        found = [name for kind in kinds for name in self.numbers if KINDS[name] == kind]
        if not found:
            raise NoOperand
        name = self.choices.pick(found)
        form = self.choices.pick(FORMS[KINDS[name]]) if use != "flag" and self.choices.chance(25) else "NUMBER"
        return form.replace("NUMBER", f"{{{name}}}")

    def dim(self, name: str, least: int = 0) -> int:
        """A dimension of at least that size. Raises: NoOperand."""
        dims = [dim for dim, size in enumerate(self[name].shape) if size >= least]
        if not dims:
            raise NoOperand
        dim = self.choices.pick(dims)
        return dim - self[name].dim() if self.choices.chance(20) else dim

    def indices(self, size: int, count: int) -> str:
        """Indices below `size`, with duplicates, as the text of a tensor where the first operand is."""
        found = [self.choices.below(size) for _ in range(count)]
        return f"torch.tensor({found}, dtype=torch.int64, device={{0}}.device)"


def is_expandable(shape: torch.Size, target: torch.Size) -> bool:
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    return len(padded) == len(target) and all(a in (1, b) for a, b in zip(padded, target, strict=True))


def _broadcasts(one: torch.Size, other: torch.Size) -> bool:
    short = min(len(one), len(other))
    pairs = zip(one[len(one) - short :], other[len(other) - short :], strict=True)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def is_integer(tensor: Tensor) -> bool:
    return not has_fractions(tensor) and tensor.dtype != torch.bool


def is_bool(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bool


def has_fractions(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def is_number(tensor: Tensor) -> bool:
    return tensor.dtype != torch.bool


def is_ordered(tensor: Tensor) -> bool:
    return not tensor.is_complex()


def has_dims(least: int, most: int = 9) -> Where:
    """Whether a tensor has that many dimensions and, if any, an element."""
    return lambda tensor: least <= tensor.dim() <= most


def has_elements(tensor: Tensor) -> bool:
    return tensor.numel() > 0
