"""Cuts of joint graphs for `partitioning.py`, in a process: `python -m` this module, with `REQUEST ANSWER`.

The answer is one line a size, a `Row` without its program.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.assembly.compilers import Compilers
from assay.compiler.assembly.halves import halve
from assay.compiler.autograd.partition import Split
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.ir.graph.roles import GraphCall, Program, Saved, UserInput
from assay.compiler.ir.graph.trace import RECOMPUTED
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.passes import CHOICES, PASSES
from assay.compiler.pipeline import divide
from assay.harness.bench.compile_time.partitioning import programs

CUTS = 3


def row_of(function: Callable[..., Any], inputs: Sequence[Tensor], size: int) -> dict[str, Any]:
    """Records the function with its gradients as a compile does, and times its cut."""
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(index), value, mode) for index, value in enumerate(inputs))
    found: dict[str, Any] = {"size": size}
    start = time.process_time()

    def timed(joint: Program) -> Split:
        found["record_s"] = time.process_time() - start
        times = []
        for _ in range(CUTS):
            began = time.process_time()
            split = cheapest_split(joint)
            times.append(time.process_time() - began)
        found.update(nodes=len(joint.module.graph.nodes), seconds=min(times), saved=_saved(split), again=_again(split))
        return split

    compilers = Compilers(_unbuilt, _unbuilt, _unbuilt, partition=timed, passes=(*PASSES, *CHOICES))
    call = Call(lambda args: [function(*args)], leaves, mode)
    halve(capture(call, compilers.decompositions), call, compilers, Journal.open(Options.of(None, None)), divide)
    return found


def _unbuilt(program: Program) -> GraphCall:
    raise AssertionError("halves are cut here, and not built")


def _saved(split: Split) -> int:
    return sum(isinstance(role, Saved) for role in split.forward.signature.outputs)


def _again(split: Split) -> int:
    return sum(RECOMPUTED in node.meta for node in split.backward.module.graph.nodes)


def main(request_path: str, answer_path: str) -> None:
    asked: dict[str, Any] = json.loads(Path(request_path).read_text())
    program = programs()[asked["program"]]
    row_of(*program.make(max(1, min(asked["sizes"]) // 2)), 0)  # pays for imports and tables
    with Path(answer_path).open("a") as answers:
        for size in asked["sizes"]:
            print(json.dumps(row_of(*program.make(size), size)), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
