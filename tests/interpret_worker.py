"""Run in a process of its own with TRITON_INTERPRET=1: the hand-written kernels as Triton programs, interpreted.

python -m tests.interpret_worker <cache directory> <file for the results>
"""

from __future__ import annotations

import itertools
import sys

import torch

from assay.compiler.codegen.triton.tile_sizes import SPACE
from assay.compiler.options import Options
from assay.harness.backends.interpreted import interpret
from tests import kernel_ir as ir
from tests.compiler.codegen.triton.test_triton_programs import BY_ROW, CHANGED, INTERPRETED


def main(cache: str, output: str) -> None:
    options = ir.options(cache)
    found = {name: ir.launch(interpret(run.kernel, options), run) for name, run in INTERPRETED.items()}
    for name in BY_ROW:
        run = INTERPRETED[name]
        found[f"{name}, by row"] = ir.launch(interpret(run.kernel, options, is_by_row=True), run)
    for name, change in itertools.product(CHANGED, SPACE):
        run = INTERPRETED[name]
        found[f"{name}, {change}"] = ir.launch(interpret(run.kernel, options, change=change), run)
    found["over one memory"] = over_one_memory(options)
    torch.save(found, output)


def over_one_memory(options: Options) -> dict[str, torch.Tensor]:
    """A row times its own first element, which is a buffer of its own at the same address."""
    product = ir.call("mul", ir.load("first", 0), ir.load("x", ir.i))
    x, y = torch.arange(2.0, 8.0), torch.zeros(6)
    run = ir.make_run(ir.loops(i=6), [ir.store("y", ir.i, product)], {"first": x[:1], "x": x}, {"y": y})
    interpret(run.kernel, options)(x.data_ptr(), x.data_ptr(), y.data_ptr())
    return {"y": y}


if __name__ == "__main__":
    main(*sys.argv[1:])
