"""Where a value stands in its source: the definition of a function, the statements of a module that bind a name."""

from __future__ import annotations

import ast
import functools
import linecache
import math
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.fx.graph import _get_qualified_name

OURS = "assay"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.memory_format)


class Unwritable(ValueError):
    """A part of a case that has no text of its own; the message names it."""


@functools.cache
def tree_of(path: str) -> ast.Module:
    """The parsed source of a file. Raises: Unwritable for one without a source."""
    source = "".join(linecache.getlines(path))
    if not source:
        raise Unwritable(f"{path} has no source")
    return ast.parse(source)


def definition_of(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The definition of a function in its file. Raises: Unwritable where it is not found."""
    code = function.__code__
    for node in ast.walk(tree_of(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            if min([node.lineno, *(each.lineno for each in node.decorator_list)]) == code.co_firstlineno:
                return node
    found = [node for node in ast.walk(tree_of(code.co_filename)) if isinstance(node, ast.Lambda) and _is(node, code)]
    if not found:
        raise Unwritable(f"{function.__qualname__} is not found in {code.co_filename}")
    return min(found, key=lambda node: len(ast.dump(node)))


def _is(node: ast.Lambda, code: CodeType) -> bool:
    """Whether a lambda has the arguments of a code, and its instructions lie in the body."""
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    if names != list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        return False
    body = node.body
    spans = [((a, c), (b, d)) for a, b, c, d in code.co_positions() if None not in (a, b, c, d) and (c, d) != (0, 0)]
    begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    return bool(spans) and all(begin <= first and last <= end for first, last in spans)  # type: ignore[operator]


def module_of(namespace: Mapping[str, Any]) -> ModuleType:
    """The module that a namespace is of. Raises: Unwritable where it is of none."""
    name = namespace.get("__name__", "")
    if name not in sys.modules or not getattr(sys.modules[name], "__file__", None):
        raise Unwritable(f"the functions of {name or 'a text'} have no module with a source")
    return sys.modules[name]


def binding_of(name: str, module: ModuleType) -> ast.stmt | None:
    """The last statement of a module that binds a name; one within an `if` or a `try` counts."""
    assert module.__file__ is not None
    found = [each for each in _statements(tree_of(module.__file__)) if name in bound_by(each)]
    return found[-1] if found else None


def registered_on(name: str, module: ModuleType) -> Iterator[ast.stmt]:
    """The statements of a module that give what a name stands for more: calls of its own, and functions called `_`
    under a decorator that reads the name."""
    assert module.__file__ is not None
    for each in tree_of(module.__file__).body:
        is_call = isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
        is_nameless = isinstance(each, FUNCTIONS) and each.name == "_"
        read = each.decorator_list if isinstance(each, FUNCTIONS) else [each]
        if (is_call or is_nameless) and any(name in names_in(part) for part in read):
            yield each


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for each in getattr(node, "body", []):
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from _statements(each)


def bound_by(statement: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.If | ast.Try):
        return set()
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def names_in(node: ast.AST) -> list[str]:
    """The names that a piece of source reads and does not bind itself, each once, in their order."""
    walked = list(ast.walk(node))
    bound = {each.id for each in walked if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    bound |= {each.arg for each in walked if isinstance(each, ast.arg)}
    bound |= {each.name for each in walked if isinstance(each, DEFINITIONS) and each is not node}
    read = [each.id for each in walked if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    return [name for name in dict.fromkeys(read) if name not in bound]


def is_installed(module: ModuleType) -> bool:
    """Whether a module is part of Python or of an installed package that is not ours, so that a file may import it."""
    if module.__name__.partition(".")[0] == OURS:
        return False
    path = getattr(module, "__file__", None)
    places = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return path is None or any(Path(path).is_relative_to(place) for place in places)


def import_of(name: str, value: Any) -> str | None:
    """The line that imports a value of an installed module under a name; None where none does."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}" if is_installed(value) else None
    home, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    module = sys.modules.get(home or "")
    if module is None or not is_installed(module) or getattr(module, path, None) is not value:
        return None
    return f"from {home} import {path}" + (f" as {name}" if path != name else "")


def plain_text(value: Any) -> str | None:
    """A plain value as Python that needs torch alone; None for any other."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.Size):
        return repr(tuple(value))
    return repr(value) if isinstance(value, PLAIN) else None


def qualified_text(function: Any) -> str:
    """Where a function of torch's is found. Raises: Unwritable for one of somebody else's."""
    name = str(_get_qualified_name(function)).replace("_operator.", "operator.")
    if name.partition(".")[0] != "torch":
        raise Unwritable(f"{name} is no part of torch")
    return name
