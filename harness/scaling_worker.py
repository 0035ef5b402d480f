"""One compile for `harness.scaling`, in a process of its own: `python -m harness.scaling_worker REQUEST ANSWER`.

The answer is one line {"nodes", "compile_s", "stages", "error"}. A tiny program goes first and pays for imports.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from compiler import journal
from harness.backends import graph_compiler
from harness.scaling import Growing, Request, programs

TINY = 8


def compiled_s(program: Growing, size: int, mode: str, backend: str) -> tuple[int, float]:
    """The number of nodes, and the seconds of a compile with its first call."""
    module, inputs = program.make(size)
    if mode == "train":
        for value in inputs:
            value.requires_grad_()
    start = time.perf_counter()
    compiler, _ = graph_compiler(backend)
    (result,) = compiler(module, list(inputs))(*inputs)
    if mode == "train":
        result.sum().backward()
    return len(module.graph.nodes), time.perf_counter() - start


def answer(request: Request) -> dict[str, Any]:
    program = programs()[request.program]
    try:
        compiled_s(program, TINY, request.mode, request.backend)
        torch._dynamo.reset()
        journal.reset()
        nodes, spent = compiled_s(program, request.size, request.mode, request.backend)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        return {"nodes": None, "compile_s": None, "stages": {}, "error": said}
    eager = journal.totals()["eager_graphs"]
    return {
        "nodes": nodes, "compile_s": spent, "stages": journal.totals()["seconds"],
        "error": "the compiler gave it back to eager" if eager else "",
    }  # fmt: skip


def main(request_path: str, answer_path: str) -> None:
    request = Request(**json.loads(Path(request_path).read_text()))
    with Path(answer_path).open("a") as answers:
        print(json.dumps(answer(request)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
