"""Hands a callable to a graph compiler as it stands, without Dynamo: a graph of one node, which the compiler records.

Dynamo reads bytecode, which for a list of calls of operators adds most of the time and nothing that is compared. A
callable whose recording fails here (it reads a number out of a tensor) is for torch.compile, which breaks its graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from assay.harness.backends.registry import Backend, graph_compiler, promises_bits

Compiler = Callable[..., Callable[..., Any]]


def without_dynamo(name: str) -> Backend:
    """The backend of that name, given each callable as one graph when it is first called.

    A compiled callable serves calls like its first one. Raises: BackendError if there is no such backend.
    """
    compiler, dynamic = graph_compiler(name)
    return Backend(name, functools.partial(_Direct, compiler, dynamic), has_eagers_bits=promises_bits(name))


@dataclass(slots=True)
class _Direct:
    """A callable that is compiled for the first call's arguments. Constants among them are part of the graph."""

    compiler: Compiler
    dynamic: bool
    function: Callable[..., Any]
    compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())
        if self.compiled is None:
            self.compiled = self._compile(leaves, spec, tensors)
        return self.compiled(*tensors)

    def _compile(self, leaves: list[Any], spec: pytree.TreeSpec, tensors: list[Tensor]) -> Callable[..., Any]:
        number = {id(tensor): index for index, tensor in enumerate(tensors)}
        places = [number[id(leaf)] if isinstance(leaf, Tensor) else None for leaf in leaves]
        returned: list[pytree.TreeSpec] = []

        def whole(*given: Tensor) -> tuple[Any, ...]:
            filled = [leaf if at is None else given[at] for leaf, at in zip(leaves, places, strict=True)]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            result = self.function(*args, **kwargs)
            if pytree.tree_any(_is_size, result, is_leaf=_is_size):
                raise TypeError("a result is a torch.Size, which would come back as a tuple")
            results, structure = pytree.tree_flatten(result)
            returned[:] = [structure]
            return tuple(results)

        inputs = _symbolic(tensors) if self.dynamic else tensors
        run = self.compiler(_graph_of(whole, len(tensors)), inputs)
        return lambda *given: pytree.tree_unflatten(list(run(*given)), returned[0])


def _is_size(value: Any) -> bool:
    return isinstance(value, torch.Size)


def _graph_of(function: Callable[..., Any], count: int) -> fx.GraphModule:
    """The function of `count` tensors as a graph with one node."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"input_{index}") for index in range(count))
    graph.output(graph.call_function(function, inputs))
    return fx.GraphModule({}, graph)


def _symbolic(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Fake tensors with symbols for sizes, as Dynamo makes them under `dynamic=True`; what only the data tells is no
    symbol, as for Dynamo.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False))
    return [_symbolic_tensor(mode, index, tensor) for index, tensor in enumerate(tensors)]


def _symbolic_tensor(mode: FakeTensorMode, index: int, tensor: Tensor) -> Tensor:
    dims = tensor.dim()
    context: StatelessSymbolicContext[Any, Any] = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] * dims, constraint_sizes=[None] * dims
    )
    return mode.from_tensor(tensor, source=ConstantSource(f"input_{index}"), symbolic_context=context)
