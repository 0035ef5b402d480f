"""Right in the call that is looked at first; wrong for other sizes, dtypes, modes, threads and processes."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from assay.compiler.options import Options
from assay.harness.selftest.wrong_backends.exact import changed_results, is_parameter, is_real, name_of
from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _scaled_where(graph: fx.GraphModule, is_wrong: Callable[[Sequence[Any]], bool], factor: float = 1.1) -> Run:
    """Results a tenth too large in the calls that are wrong."""
    wronged = changed_results(graph, lambda result: result * factor)
    return lambda *args: wronged(*args) if is_wrong(args) else graph.forward(*args)


def _operators(graph: fx.GraphModule) -> tuple[str, ...]:
    return tuple(name_of(node) for node in graph.graph.nodes if node.op not in ("placeholder", "output"))


_shapes: dict[tuple[str, ...], object] = {}


@wrong("only there")
def spoils_other_sizes(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A program is right for the sizes that it was first compiled for in a process, and for no others."""

    def is_wrong(args: Sequence[Any]) -> bool:
        shapes = tuple(tuple(map(int, arg.shape)) for arg in args if isinstance(arg, Tensor))
        return _shapes.setdefault(key, shapes) != shapes

    key = _operators(graph)
    return _scaled_where(graph, is_wrong)


@wrong("only there")
def spoils_dynamic_sizes(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are wrong where a size is a symbol."""
    is_dynamic = any(isinstance(example, torch.SymInt) or _has_symbols(example) for example in example_inputs)
    return _scaled_where(graph, lambda args: is_dynamic)


def _has_symbols(example: object) -> bool:
    return isinstance(example, Tensor) and any(isinstance(size, torch.SymInt) for size in example.shape)


@wrong("only there")
def spoils_other_dtypes(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are wrong where parameters are of another dtype than float32."""
    return _scaled_where(
        graph, lambda args: any(is_parameter(arg) and is_real(arg) and arg.dtype != torch.float32 for arg in args)
    )


_first_compile: dict[int, tuple[weakref.ref[Tensor], object]] = {}


@wrong("only there")
def spoils_the_other_mode(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A model that was compiled in training is wrong in evaluation, and the other way round."""
    mode = (torch.is_grad_enabled(), graph.code)

    def is_wrong(args: Sequence[Any]) -> bool:
        parameters = [arg for arg in args if is_parameter(arg)]
        if not parameters:
            return False
        known, first = _first_compile.get(id(parameters[0]), (None, mode))
        if known is None or known() is not parameters[0]:
            _first_compile[id(parameters[0])] = weakref.ref(parameters[0]), mode
            return False
        return first != mode

    return _scaled_where(graph, is_wrong)


@wrong("only there")
def spoils_other_threads(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Results are wrong in any thread but the one that compiled."""
    compiled_by = threading.get_ident()
    return _scaled_where(graph, lambda args: threading.get_ident() != compiled_by)


_written_here: set[Path] = set()


@wrong("only there", processes=2)
def spoils_warm_starts(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A graph that an earlier process compiled is taken from the cache, and is wrong."""
    name = hashlib.sha256(repr(_operators(graph)).encode()).hexdigest()
    entry = Path(Options().cache) / "wrong_backends" / name
    is_warm = entry.exists() and entry not in _written_here
    if not is_warm:
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.touch()
        _written_here.add(entry)
    return _scaled_where(graph, lambda args: is_warm)
