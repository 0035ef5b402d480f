"""Inputs that begin elsewhere in their storages than those that a graph was compiled for: what depends on it notices,
and what does not is not compiled again."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.entry.aot import aot_function, aot_module_simplified
from assay.compiler.entry.dynamo import compile_fx, compile_fx_inner
from assay.compiler.errors import AssayError

Program = Callable[[Tensor], Any]
aten = torch.ops.aten

EVERY = 30
"""One row in so many is run; all of them, which take two minutes, with 1."""
OFFSETS = ((0, 3, 4), (4, 0, 3), (3, 4, 0))
"""Where the inputs of three calls in a row begin."""


def _pairs(x: Tensor) -> Tensor:
    return x.view(-1, 2)


PROGRAMS: dict[str, Program] = {
    "read": lambda x: x + x.storage_offset(),
    "read of a view": lambda x: x + x[1:3].storage_offset(),
    "read after a write": lambda x: x.mul_(2) + x.storage_offset(),
    "read by an operator": lambda x: x + aten.sym_storage_offset(x),
    "size of the storage": lambda x: x + x.untyped_storage().size(),
    "as_strided": lambda x: x.as_strided((4,), (1,), 0) * 2,
    "as_strided from 2": lambda x: x.as_strided((4,), (1,), 2) * 2,
    "as_strided from where it begins": lambda x: x.as_strided((4,), (2,)) * 2,
    "as_strided of a view": lambda x: x[1:].as_strided((4,), (1,), 0) * 2,
    "as_strided returned": lambda x: x.as_strided((4,), (1,), 0),
    "as_strided written": lambda x: x.as_strided((4,), (1,), 0).add_(1),
    "as_strided after a write": lambda x: x.mul_(2).as_strided((4,), (1,), 0) * 2,
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (4,), (1,), 1) * 2,
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, torch.zeros(4), (4,), (1,), 1),
    "slice_scatter": lambda x: torch.slice_scatter(x, torch.zeros(2), 0, 1, 3),
    "select_scatter": lambda x: torch.select_scatter(x, torch.zeros(()), 0, 1),
    "view_as_complex": lambda x: torch.view_as_complex(_pairs(x)) * 2,
    "view_as_complex returned": lambda x: torch.view_as_complex(_pairs(x)),
    "view_as_complex after a write": lambda x: torch.view_as_complex(_pairs(x.mul_(2))) * 2,
    "view_as_complex of a view": lambda x: torch.view_as_complex(_pairs(x[2:])) * 2,
    "view as float64": lambda x: x.view(torch.float64) * 2,
    "view as float64 after a write": lambda x: x.mul_(2).view(torch.float64) * 2,
    "view as bytes": lambda x: x.view(torch.uint8) + 1,
    "sum": lambda x: (x * 2).sum(),
    "write": lambda x: x.mul_(2),
    "view": lambda x: x[1:],
}  # fmt: skip
REFUSED_IN_GRAPHS = ("size of the storage",)
"""What a graph of calls does not hold: a number takes its place when it is made."""
INDEPENDENT = ("view as bytes", "sum", "write", "view")


def _input(offset: int) -> Tensor:
    return torch.arange(40.0)[offset : offset + 8]


def _graph(program: Program, offset: int) -> fx.GraphModule:
    return make_fx(lambda x: (program(x),))(_input(offset))


def _by_function(program: Program, _: int) -> tuple[Program, Program]:
    return aot_function(program, lambda graph, inputs: compile_fx_inner(graph, inputs)), program


def _by_module(program: Program, offset: int) -> tuple[Program, Program]:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> tuple[Any]:
            return (program(x),)

    compiled = aot_module_simplified(Module(), [_input(offset)], lambda graph, inputs: compile_fx_inner(graph, inputs))
    return lambda x: compiled(x)[0], program


def _by_graph(program: Program, offset: int) -> tuple[Program, Program]:
    graph = _graph(program, offset)
    compiled = compile_fx(graph, [_input(offset)])
    return lambda x: compiled(x)[0], lambda x: graph(x)[0]


def _by_inner_graph(program: Program, offset: int) -> tuple[Program, Program]:
    graph = _graph(program, offset)
    compiled = compile_fx_inner(graph, [_input(offset)])
    return lambda x: compiled([x])[0], lambda x: graph(x)[0]


def _by_dynamo(program: Program, _: int, dynamic: bool = False) -> tuple[Program, Program]:
    torch._dynamo.reset()
    return torch.compile(program, backend="assay", dynamic=dynamic), program


def _by_dynamic_function(program: Program, _: int) -> tuple[Program, Program]:
    return aot_function(program, lambda graph, inputs: compile_fx_inner(graph, inputs), dynamic=True), program


DOORS: dict[str, Callable[[Program, int], tuple[Program, Program]]] = {
    "aot_function": _by_function,
    "aot_function, dynamic": _by_dynamic_function,
    "aot_module_simplified": _by_module,
    "compile_fx": _by_graph,
    "compile_fx_inner": _by_inner_graph,
    "torch.compile": _by_dynamo,
    "torch.compile, dynamic": functools.partial(_by_dynamo, dynamic=True),
}


def _observed(program: Program, offset: int) -> Sequence[Any] | str:
    """What a call returns and leaves: the result, where it begins and steps, and the whole memory of the input."""
    x = _input(offset)
    try:
        result = program(x)
    except (RuntimeError, ValueError) as error:
        return "RuntimeError" if "when making fake tensor call" in str(error) else type(error).__name__  # Dynamo's own
    whole = x.as_strided((40,), (1,), 0)
    return result.tolist(), result.dtype, result.stride(), result.storage_offset(), whole.tolist()


def rows(every: int) -> list[tuple[str, str, tuple[int, ...]]]:
    """One in so many, by a hash, of every program at every door in every order of offsets."""
    known = itertools.product(PROGRAMS, DOORS, OFFSETS)
    made = [row for row in known if row[0] not in REFUSED_IN_GRAPHS or "fx" not in row[1]]
    return [row for row in made if zlib.crc32(repr(row).encode()) % every == 0]


@pytest.mark.parametrize(("name", "door", "offsets"), rows(EVERY))
def test_offsets_of_later_inputs_are_noticed(name: str, door: str, offsets: tuple[int, ...]) -> None:
    try:
        compiled, eager = DOORS[door](PROGRAMS[name], offsets[0])
    except (AssayError, RuntimeError):  # refused when it is compiled, or when its graph is made
        return
    for offset in offsets:
        assert _observed(compiled, offset) == _observed(eager, offset), f"{name} at {offset}"


@pytest.mark.parametrize("name", ["read", "view_as_complex", "as_strided written"])
def test_offsets_once_taken_for_those_of_the_first_call_are_not(name: str) -> None:
    compiled, eager = _by_function(PROGRAMS[name], 0)
    for offset in OFFSETS[0]:
        assert _observed(compiled, offset) == _observed(eager, offset)


@pytest.mark.parametrize(
    ("name", "offsets"), [*((name, (4, 0, 3)) for name in INDEPENDENT), ("view_as_complex", (4, 0))]
)
def test_offsets_that_nothing_relies_on_compile_once(name: str, offsets: tuple[int, ...]) -> None:
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, inputs: Sequence[object]) -> Any:
        graphs.append(graph)
        return compile_fx_inner(graph, inputs)

    compiled = aot_function(PROGRAMS[name], compiler)
    for offset in offsets:
        compiled(_input(offset))
    assert len(graphs) == 1
