"""A few programs of `operators.py` in a process: `python -m assay.harness.bench.operators_worker REQUEST ANSWER`.

Each row is one JSON line, written as soon as it is measured.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from assay.harness import measure
from assay.harness.backends.registry import graph_compiler
from assay.harness.bench.bench_worker import EAGER, said
from assay.harness.bench.operators import MOST, Made, Program, Request, Row, programs
from assay.harness.observe.observation import seed_all

SAMPLE_S = 0.004
"""The least that one sample lasts: there are thousands of rows."""
AGAIN = 3
"""Times the rounds for a row above the bar."""


def compiled(made: Made, backend: str) -> measure.Step:
    """A call of what the backend makes of a graph of this one call."""
    function, inputs = made
    graph = fx.Graph()
    given = tuple(graph.placeholder(f"input_{position}") for position in range(len(inputs)))
    graph.output((graph.call_function(function, given),))
    compiler, _ = graph_compiler(backend)
    run = compiler(fx.GraphModule({}, graph), list(inputs))
    return lambda: run(*inputs)


def step_of(made: Made, backend: str) -> measure.Step:
    """One call, with no gradients recorded."""
    function, inputs = made
    return (lambda: function(*inputs)) if backend == EAGER else compiled(made, backend)


def rows_of(program: Program, dtype: str, layout: str, request: Request) -> Iterator[Row]:
    """The cell beside each other; one row that says why where there is no such call."""
    row = Row(program.name, dtype, layout, request.against[0])
    try:
        seed_all(request.seed)
        made = program.make(getattr(torch, dtype), layout)
        step_of(made, EAGER)()
    except Exception as error:
        yield dataclasses.replace(row, refused=said(error))
        return
    try:
        ours = compiled(made, request.backend)
        ours()
    except Exception as error:
        yield dataclasses.replace(row, error=said(error))
        return
    for against in request.against:
        yield beside(dataclasses.replace(row, against=against), ours, made, request.rounds)


def beside(row: Row, ours: measure.Step, made: Made, rounds: int) -> Row:
    """The row with its times; above the bar it is measured again."""
    try:
        theirs = step_of(made, row.against)
        found = measure.alternate(ours, theirs, rounds=rounds, sample_s=SAMPLE_S)
        if min(found.ours) > MOST * min(found.theirs):
            found = measure.alternate(ours, theirs, rounds=AGAIN * rounds, sample_s=SAMPLE_S)
    except Exception as error:
        return dataclasses.replace(row, error=said(error))
    return with_times(row, found)


def with_times(row: Row, found: measure.Rounds) -> Row:
    """The row with the least of its times: what else runs on the machine only adds to them."""
    ours, theirs = min(found.ours), min(found.theirs)
    low, high = found.spread
    spread = 1 / high, 1 / low
    return dataclasses.replace(row, ours_us=ours * 1e3, against_us=theirs * 1e3, ratio=ours / theirs, spread=spread)


def main(request_path: str, answer_path: str) -> None:
    fields: dict[str, Any] = json.loads(Path(request_path).read_text())
    request = Request(**fields)
    done = {tuple(cell) for cell in request.done}
    torch.set_num_threads(1)
    found = programs()
    with Path(answer_path).open("a") as answers, torch.no_grad():
        for program in (found[name] for name in request.programs):
            for dtype, layout in program.cells:
                if (program.name, dtype, layout) not in done:
                    for row in rows_of(program, dtype, layout, request):
                        print(json.dumps(dataclasses.asdict(row)), file=answers, flush=True)
                    torch._dynamo.reset()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
