"""One compile for `scaling.py`, in a process of its own: `python -m` this module, with `REQUEST ANSWER`.

The answer is one line {"nodes", "compile_s", "cpu_s", "stages", "error"}. A tiny program goes first and
pays for imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from assay.compiler import journal
from assay.harness.backends.registry import graph_compiler
from assay.harness.bench.compile_time.scaling import Growing, Inputs, Request, programs
from assay.harness.measure import cpu_s

TINY = 8


def compiled(program: Growing, size: int, mode: str, backend: str) -> dict[str, Any]:
    """The number of nodes, and the seconds of a compile with its first call."""
    module, inputs = program.make(size)
    if mode == "train":
        for value in inputs:
            value.requires_grad_()
    start, start_cpu = time.perf_counter(), cpu_s()
    compiler, is_dynamic = graph_compiler(backend)
    given = symbolic(inputs) if is_dynamic else list(inputs)
    with tracing(given):
        run = compiler(module, given)
    (result,) = run(*inputs)
    if mode == "train":
        result.sum().backward()
    spent, spent_cpu = time.perf_counter() - start, cpu_s() - start_cpu
    return {"nodes": len(module.graph.nodes), "compile_s": spent, "cpu_s": spent_cpu}


def symbolic(inputs: Inputs) -> list[FakeTensor]:
    """Fake inputs whose sizes are symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return [_with_symbols(mode, place, value) for place, value in enumerate(inputs)]


def _with_symbols(mode: FakeTensorMode, place: int, value: torch.Tensor) -> FakeTensor:
    context: Any = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] * value.dim(), constraint_sizes=[None] * value.dim()
    )
    return mode.from_tensor(value, source=ConstantSource(f"input_{place}"), symbolic_context=context)


def tracing(inputs: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """What says to a backend of which mode its fake inputs are, as around Dynamo's calls of it."""
    modes = [value.fake_mode for value in inputs if isinstance(value, FakeTensor)]
    return torch._guards.tracing(torch._guards.TracingContext(modes[0])) if modes else nullcontext()


def answer(request: Request) -> dict[str, Any]:
    program = programs()[request.program]
    try:
        compiled(program, TINY, request.mode, request.backend)
        torch._dynamo.reset()
        journal.reset()
        measured = compiled(program, request.size, request.mode, request.backend)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        return {"stages": {}, "error": said}
    refused = "the compiler gave it back to eager" if journal.totals()["eager_graphs"] else ""
    return measured | {"stages": journal.totals()["seconds"], "error": refused}


def main(request_path: str, answer_path: str) -> None:
    request = Request(**json.loads(Path(request_path).read_text()))
    with Path(answer_path).open("a") as answers:
        print(json.dumps(answer(request)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
