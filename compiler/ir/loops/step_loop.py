"""Steps as one loop: a schedule that runs again and again, each time over other rows of the same memory.

StepLoop := name, schedule, places: {input or output of the schedule: Place}
Place    := Fixed | Row | Turn(shift) | Total

for step:  h = exp(row * a) * h; y = sum(h)          row, y: Row    h as input: Turn(0)    h as output: Turn(1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.index import Index, Int
from assay.compiler.ir.loops.kernel import Allocate, Free, Launch, Reinterpret, Reuse, Schedule, Step, references


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same memory at each step."""


@dataclass(frozen=True, slots=True)
class Row:
    """Row `step` of a tensor."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Row `(step + shift) % rows` of a tensor: what one step writes with a shift another one reads without."""

    shift: int


@dataclass(frozen=True, slots=True)
class Total:
    """The sum over all steps, in their order."""


Place: TypeAlias = Fixed | Row | Turn | Total


@dataclass(frozen=True, slots=True)
class StepLoop:
    """`places` are those of the schedule's inputs, constants and outputs, by their names, in the order of the call's
    arguments. `dtypes` are those of the inputs."""

    name: str
    schedule: Schedule
    places: Mapping[str, Place]
    dtypes: Mapping[str, torch.dtype]

    def outputs(self) -> dict[str, Allocate]:
        """The memory in which each result is made. Raises: Unsupported for a result that is made elsewhere."""
        made = {step.name: step for step in self.schedule.steps if isinstance(step, Allocate | Reuse)}
        found = {}
        for name in references(self.schedule.outputs):
            step = made.get(name)
            while isinstance(step, Reuse):
                step = made.get(step.of)
            if step is None:
                raise Unsupported(f"a step returns {name}, which no kernel makes")
            found[name] = step
        return found


def check_steps(schedule: Schedule) -> None:
    """Raises: Unsupported for a schedule that is more than launches of kernels on the CPU, of known sizes."""
    if schedule.symbols:
        raise Unsupported("a size in a step is a symbol")
    for step in schedule.steps:
        if not isinstance(step, Allocate | Reuse | Launch | Reinterpret | Free):
            raise Unsupported(f"a step calls {_called(step)}")
        if isinstance(step, Allocate) and step.device.type != "cpu":
            raise Unsupported("a step runs on a GPU")


def _called(step: Step) -> str:
    return str(getattr(step, "target", "an operator"))


def bytes_of(step: Allocate) -> int:
    """The bytes from the first element of a result to its last."""
    sizes, strides = map(numbers_of, (step.size, step.stride))
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return 0 if 0 in sizes else (last + 1) * step.dtype.itemsize


def numbers_of(sizes: tuple[Index, ...]) -> list[int]:
    """Sizes as numbers. Raises: Unsupported for one that is a symbol."""
    return [number_of(size) for size in sizes]


def number_of(size: Index) -> int:
    """A size as a number. Raises: Unsupported for one that is a symbol."""
    if not isinstance(size, Int):
        raise Unsupported("a size in a step is a symbol")
    return size.value
