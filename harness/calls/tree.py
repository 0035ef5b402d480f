"""Names every value inside a call or a result: `output.logits`, `input[0]['mask']`, `parameter.head.weight`.

Containers, dataclasses, named tuples and plain objects are opened; a module contributes its parameters and buffers.
So are tensors of a class with inner tensors.
The kind of every node is recorded too. So a list in the place of a tuple, or None in the place of a tensor, is a
difference of structure.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.compiler.ir.tensors.wrappers import Recipe, is_wrapper

SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.Generator)


@dataclass(frozen=True, slots=True)
class Tree:
    """The values by path: `kinds` of every node; `tensors`, `scalars` and random `generators` at the leaves."""

    kinds: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    generators: dict[str, torch.Generator] = field(default_factory=dict)


def walk(value: Any, path: str) -> Tree:
    """The tree of `value`, whose root is called `path`. An object that was met before is not opened again."""
    tree = Tree()
    _visit(value, path, tree, set())
    return tree


def walk_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
    """All that a call can reach and a program can watch: inputs, parameters, buffers, and what a closure holds."""
    tree, seen = Tree(), {id(args), id(kwargs)}
    for index, value in enumerate(args):
        _visit(value, f"input[{index}]", tree, seen)
    for name, value in kwargs.items():
        _visit(value, f"input{_key(name)}", tree, seen)
    for path, value in _held_by(function):
        _visit(value, path, tree, seen)
    return tree


def modules_in(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[nn.Module, ...]:
    """The modules that a call holds or is given, outermost only."""
    values = [value for _, value in _held_by(function)] + list(args) + list(kwargs.values())
    return tuple(value for value in values if isinstance(value, nn.Module))


def _held_by(function: Any, around: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """What a callable carries besides its arguments, with the path that each has: modules have the empty path.

    `around` are the functions in whose closures it was found. A function that calls itself is in its own.
    """
    if id(function) in around:
        return
    around = around | {id(function)}
    if isinstance(function, nn.Module):
        yield "", function
    elif isinstance(function, types.MethodType):
        yield from (
            _held_by(function.__self__, around)
            if isinstance(function.__self__, nn.Module)
            else [("self", function.__self__)]
        )
    elif isinstance(function, types.FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield from _held_by_cell(name, cell, around)
    elif isinstance(function, functools.partial):
        yield from _held_by(function.func, around)
        yield "partial", (function.args, function.keywords)
    elif not isinstance(function, OPAQUE):
        yield "self", function


def _held_by_cell(name: str, cell: types.CellType, around: frozenset[int]) -> Iterator[tuple[str, Any]]:
    try:
        content = cell.cell_contents
    except ValueError:  # an empty cell: the name was deleted or is not bound yet
        return
    if isinstance(content, types.FunctionType | types.MethodType):
        yield from ((f"closure.{name}" if path == "" else path, value) for path, value in _held_by(content, around))
    else:
        yield f"closure.{name}", content


def _visit(value: Any, path: str, tree: Tree, seen: set[int]) -> None:
    if isinstance(value, Tensor):
        tree.kinds[path], tree.tensors[path] = _name_of(type(value)), value
        for name in Recipe.of(value).names if is_wrapper(value) else ():
            _visit(getattr(value, name), f"{path}.{name}", tree, seen)
        return
    if isinstance(value, SCALARS):
        tree.kinds[path], tree.scalars[path] = type(value).__name__, value
        return
    if isinstance(value, torch.Generator):
        tree.generators[path] = value
    if id(value) in seen:
        return
    seen.add(id(value))
    tree.kinds[path] = _name_of(type(value))
    for child, content in _children(value, path):
        _visit(content, child, tree, seen)


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        yield from _state_of(value, path)
    elif isinstance(value, Mapping):
        yield from ((f"{path}{_key(key)}", content) for key, content in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{index}]", content) for index, content in enumerate(value))
    elif isinstance(value, AbstractSet):
        yield from ((f"{path}{{{item!r}}}", item) for item in sorted(value, key=repr))
    elif not isinstance(value, OPAQUE):
        yield from ((f"{path}.{name}", content) for name, content in _attributes(value))


def _state_of(module: nn.Module, path: str) -> Iterator[tuple[str, Tensor]]:
    prefix = f"{path}." if path else ""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        yield f"{prefix}parameter.{name}", parameter
    for name, buffer in module.named_buffers(remove_duplicate=False):
        yield f"{prefix}buffer.{name}", buffer


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for owner in type(value).__mro__:
        for name in getattr(owner, "__slots__", ()):
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                yield name, getattr(value, name)


def _key(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}.{kind.__qualname__}"
