"""Run in a process of its own with TRITON_INTERPRET=1: the hand-written kernels as Triton programs, interpreted.

python -m tests.interpret_worker <cache directory> <file for the results>
"""

from __future__ import annotations

import itertools
import sys

import torch

from compiler.codegen.tile import SPACE
from harness.interpreted import interpret
from tests import kernel_ir as ir
from tests.test_triton_programs import BY_ROW, CHANGED, INTERPRETED


def main(cache: str, output: str) -> None:
    options = ir.options(cache)
    found = {name: ir.launch(interpret(run.kernel, options), run) for name, run in INTERPRETED.items()}
    for name in BY_ROW:
        run = INTERPRETED[name]
        found[f"{name}, by row"] = ir.launch(interpret(run.kernel, options, is_by_row=True), run)
    for name, change in itertools.product(CHANGED, SPACE):
        run = INTERPRETED[name]
        found[f"{name}, {change}"] = ir.launch(interpret(run.kernel, options, change=change), run)
    torch.save(found, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
