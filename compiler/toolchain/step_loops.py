"""Steps as one call: StepLoop -> a Python callable over addresses."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch

from assay.compiler.codegen.cpp.step_loop import emit_step_loop
from assay.compiler.ir.loops.step_loop import Row, StepLoop, Total, Turn
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import Function, load_text, raise_text

CALL = "const u64 failed = {}({});"


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
        numbers = [steps.start, len(steps), steps.step, scratch.data_ptr()]
        for name, place in self.loop.places.items():
            tensor = memory[name]
            numbers.append(tensor.data_ptr())
            if isinstance(place, Row | Turn):
                numbers.append(tensor.stride(0) * tensor.itemsize)
            if isinstance(place, Turn):
                numbers.append(tensor.shape[0])
            if isinstance(place, Total):
                numbers.append(name in begun)
        self.call(*numbers)


def load_step_loop(loop: StepLoop, options: Options) -> LoadedSteps:
    """The loop, built.

    Raises: Unsupported for steps that are more than launches of kernels; BuildError as `load_cpp` does.
    """
    made = emit_step_loop(loop)
    call = CALL.format(loop.name, ", ".join(f"v[{at}]" for at in range(made.count)))
    raises = "".join(raise_text(bit, failure) for bit, failure in enumerate(made.failures))
    function = Function(f"call_of_{loop.name}", made.count, call, raises)
    (loaded,) = load_text(made.text, [function], options)
    return LoadedSteps(loop, loaded, made.scratch_bytes)
