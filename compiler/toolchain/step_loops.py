"""Steps as one call: StepLoop -> a Python callable over addresses."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch

from assay.compiler.codegen.cpp.step_loop import LoopText, emit_step_loop, emit_while
from assay.compiler.ir.loops.step_loop import Row, StepLoop, Total, Turn
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import Function, load_text, raise_text

CALL = "const u64 failed = {}({});"
MOST_AT_ONCE = 1 << 16
"""How many steps of a loop whose end is data run before Python sees whether it is interrupted."""


@dataclass(frozen=True, slots=True)
class LoadedSteps:
    """A loop that runs. `scratch_bytes` is what one step needs beside the memory of the loop's places."""

    loop: StepLoop
    call: Callable[..., object]
    scratch_bytes: int

    def run(self, steps: range, memory: Mapping[str, torch.Tensor], begun: Container[str] = ()) -> None:
        """Runs steps over the memory of each place, by its name. The sums that have `begun` go on.

        Raises: what a step fails with, after the steps before it.
        """
        scratch = torch.empty(self.scratch_bytes, dtype=torch.uint8)
        self.call(steps.start, len(steps), steps.step, scratch.data_ptr(), *_addresses(self.loop, memory, begun))


@dataclass(frozen=True, slots=True)
class LoadedWhile:
    """Steps that run until a condition no longer holds. `flag` is the condition's result among the places of its loop,
    `scratch_bytes` what a step of each loop needs beside the memory of its places."""

    condition: StepLoop
    body: StepLoop
    flag: str
    call: Callable[..., object]
    scratch_bytes: tuple[int, int]

    def run(self, of_condition: Mapping[str, torch.Tensor], of_body: Mapping[str, torch.Tensor]) -> int:
        """Runs all steps over the memory of the places of both loops; returns how many there were.

        Raises: what a step fails with, after the steps before it. Python sees its signals from time to time.
        """
        numbers = torch.zeros(2, dtype=torch.int64)
        scratch = [torch.empty(size, dtype=torch.uint8) for size in self.scratch_bytes]
        given = [scratch[0].data_ptr(), *_addresses(self.condition, of_condition), scratch[1].data_ptr()]
        given += _addresses(self.body, of_body)
        while not numbers[1]:
            self.call(MOST_AT_ONCE, numbers.data_ptr(), of_condition[self.flag].data_ptr(), *given)
        return int(numbers[0])


def _addresses(loop: StepLoop, memory: Mapping[str, torch.Tensor], begun: Container[str] = ()) -> list[int]:
    """What a loop is told of its places, in their order."""
    numbers = []
    for name, place in loop.places.items():
        tensor = memory[name]
        numbers.append(tensor.data_ptr())
        if isinstance(place, Row | Turn):
            numbers.append(tensor.stride(0) * tensor.itemsize)
        if isinstance(place, Turn):
            numbers.append(tensor.shape[0])
        if isinstance(place, Total):
            numbers.append(name in begun)
    return numbers


def load_step_loop(loop: StepLoop, options: Options) -> LoadedSteps:
    """The loop, built.

    Raises: Unsupported for steps that are more than launches of kernels; BuildError as `load_cpp` does.
    """
    made = emit_step_loop(loop)
    return LoadedSteps(loop, _loaded(made, options), made.scratch_bytes)


def load_while(condition: StepLoop, body: StepLoop, flag: str, options: Options) -> LoadedWhile:
    """Both loops, built as one. Raises: as `load_step_loop` does."""
    parts = emit_step_loop(condition), emit_step_loop(body)
    scratch_bytes = parts[0].scratch_bytes, parts[1].scratch_bytes
    return LoadedWhile(condition, body, flag, _loaded(emit_while(*parts), options), scratch_bytes)


def _loaded(made: LoopText, options: Options) -> Callable[..., object]:
    call = CALL.format(made.name, ", ".join(f"v[{at}]" for at in range(made.count)))
    raises = "".join(raise_text(bit, failure) for bit, failure in enumerate(made.failures))
    (loaded,) = load_text(made.text, [Function(f"call_of_{made.name}", made.count, call, raises)], options)
    return loaded
