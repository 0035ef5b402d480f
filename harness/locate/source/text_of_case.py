"""The text of a case: a module that makes its call without the modules that the case stands in.

    text := import* definition* "def made(): ..." ["scenario" definition] ["NUMBERS = ..."]

What its functions read is written out with them: definitions of the same module and of other modules of the user's,
and the values of closures. Installed packages are imported.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import importlib
import itertools
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from assay.harness.case import Case
from assay.harness.locate.source.written_values import (
    DEFINITIONS,
    FUNCTIONS,
    Unwritable,
    binding_of,
    definition_of,
    import_of,
    is_installed,
    module_of,
    names_in,
    plain_text,
    qualified_text,
    registered_on,
)

MADE, SCENARIO, NUMBERS = "made", "scenario", "NUMBERS"
FUTURE = "from __future__ import annotations"


def text_of(case: Case, size: str) -> str:
    """The text of a case in a size. Raises: Unwritable for a case with a part that has no text."""
    writer = Writer()
    writer.write_made(MADE, case.function, size)
    if case.scenario is not None:
        writer.write(SCENARIO, case.scenario)
    if case.numbers:
        writer.write(NUMBERS, case.numbers)
    return writer.text()


class Writer:
    """What has been written so far: statements in the order in which they can run, each under the name it binds."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {"torch": "import torch"}
        self._written: dict[str, ast.stmt] = {}
        self._values: dict[str, object] = {}

    def text(self) -> str:
        """The whole module."""
        body = [ast.unparse(ast.fix_missing_locations(each)) for each in self._written.values()]
        has_annotations = any(isinstance(node, ast.arg) and node.annotation for node in self._nodes())
        future = [FUTURE] if has_annotations else []
        return "\n".join([*future, *dict.fromkeys(self._imports.values()), *body]) + "\n"

    def _nodes(self) -> Iterator[ast.AST]:
        for each in self._written.values():
            yield from ast.walk(each)

    def write_made(self, name: str, function: Any, size: str) -> None:
        """The function that makes the call, in a size."""
        self.write(name, function)
        made = self._written.get(name)
        if isinstance(made, ast.FunctionDef) and [arg.arg for arg in made.args.args] == ["size"]:
            made.args.defaults = [ast.Constant(size)]

    def write(self, wanted: str, value: Any) -> str:
        """Writes a value, and all that it reads, under the name that is wanted, or one like it where that is taken.

        Raises: Unwritable for a value without a text.
        """
        name = self._free(wanted, value)
        if name in self._values:
            return name
        self._values[name] = value
        if (line := import_of(name, value)) is not None:
            self._imports[name] = line
        elif isinstance(value, FunctionType):
            self._write_definition(name, value)
        elif isinstance(value, type):
            self._write_global(name, value.__name__, module_of({"__name__": value.__module__}))
        else:
            self._written[name] = ast.parse(f"{name} = {self._expression(name, value)}").body[0]
        return name

    def _free(self, wanted: str, value: object) -> str:
        """The first of `wanted`, `wanted_2`, ... that stands for the value, or for nothing yet."""
        names = itertools.chain([wanted], (f"{wanted}_{count}" for count in itertools.count(2)))
        return next(name for name in names if self._values.get(name, value) is value)

    def _write_definition(self, name: str, function: FunctionType) -> None:
        node = bare(copy.deepcopy(definition_of(function)))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for read in names_in(node):
            if read in cells:
                renamed(node, read, self.write(read, cells[read].cell_contents))
            else:
                self._write_read(read, function.__globals__)
        if isinstance(node, ast.FunctionDef):
            node.name = name
            self._written[name] = node
        else:
            self._written[name] = ast.Assign([ast.Name(name, ast.Store())], node)

    def _write_read(self, name: str, namespace: Mapping[str, Any]) -> None:
        """A name that a function reads of its module."""
        if name in namespace and not hasattr(builtins, name):
            self._write_global(name, name, module_of(namespace))

    def _write_global(self, name: str, there: str, module: ModuleType) -> None:
        """What a module binds to the name `there`, as `name`."""
        value = getattr(module, there)
        if self._values.setdefault(name, value) is not value:
            raise Unwritable(f"two things are called {name}")
        if name in self._written or name in self._imports:
            return
        statement = binding_of(there, module)
        if statement is None:
            self._imports[name] = f"from {module.__name__} import {there} as {name}"
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self._write_import(name, statement, value, module)
        else:
            self._write_statement(name, there, statement, module)

    def _write_import(self, name: str, statement: ast.Import | ast.ImportFrom, value: Any, module: ModuleType) -> None:
        alias = next(a for a in statement.names if name in (a.asname, a.name, a.name.partition(".")[0]))
        home = _home(statement, module)
        if isinstance(value, ModuleType) or is_installed(home or module):
            said = copy.deepcopy(statement)
            said.names = [alias]
            self._imports[name] = ast.unparse(said)
        elif home is not None:
            self._write_global(name, alias.name, home)

    def _write_statement(self, name: str, there: str, statement: ast.stmt, module: ModuleType) -> None:
        if name != there:
            raise Unwritable(f"{there} of {module.__name__} is called {name}")
        node = bare(copy.deepcopy(statement), keeps_decorators=True)
        before = len(self._written)
        for read in names_in(node):
            if read != name:
                self._write_read(read, vars(module))
        self._written[name] = node
        for place, more in enumerate(registered_on(name, module)):
            for read in names_in(more):
                self._write_read(read, vars(module))
            self._written[f"{name} {before} {place}"] = copy.deepcopy(more)

    def _expression(self, name: str, value: Any) -> str:
        """The text of a value; functions in it get names of their own."""
        if (text := plain_text(value)) is not None:
            return text
        if isinstance(value, dict):
            pairs = (f"{key!r}: {self._expression(f'{name}_{place}', each)}"
                     for place, (key, each) in enumerate(value.items()))  # fmt: skip
            return "{" + ", ".join(pairs) + "}"
        if type(value) in (tuple, list):
            parts = [self._expression(f"{name}_{place}", each) for place, each in enumerate(value)]
            joined = ", ".join(parts)
            return f"[{joined}]" if isinstance(value, list) else f"({joined}{',' * bool(parts)})"
        if isinstance(value, functools.partial):
            return self._partial(name, value)
        if isinstance(value, FunctionType | type) or import_of(name, value) is not None:
            return self.write(name, value)
        if isinstance(value, BuiltinFunctionType | MethodDescriptorType):
            return qualified_text(value)
        raise Unwritable(f"{name} is a {type(value).__name__}")

    def _partial(self, name: str, value: functools.partial[Any]) -> str:
        self._imports["functools"] = "import functools"
        given = [self._expression(f"{name}_{place}", each) for place, each in enumerate((value.func, *value.args))]
        named = [f"{key}={self._expression(f'{name}_{key}', each)}" for key, each in value.keywords.items()]
        return f"functools.partial({', '.join([*given, *named])})"


def renamed(node: ast.AST, old: str, new: str) -> None:
    """Gives what a piece of source reads under one name another name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == old:
            each.id = new


def _home(statement: ast.Import | ast.ImportFrom, module: ModuleType) -> ModuleType | None:
    """The module that a name is imported from."""
    if isinstance(statement, ast.Import):
        return None
    relative = "." * statement.level + (statement.module or "")
    return importlib.import_module(relative, module.__package__) if relative else None


def bare(node: Any, keeps_decorators: bool = False) -> Any:
    """A statement without decorators, docstrings and annotations. Decorated functions and classes keep the latter."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.Assign([node.target], node.value)
    if isinstance(node, FUNCTIONS) and not keeps_decorators:
        node.decorator_list = []
    for each in ast.walk(node):
        if isinstance(each, DEFINITIONS) and ast.get_docstring(each) is not None:
            each.body = each.body[1:] or [ast.Pass()]
        if isinstance(each, FUNCTIONS) and not each.decorator_list:
            each.returns = None
            for arg in ast.walk(each.args):
                if isinstance(arg, ast.arg):
                    arg.annotation = None
    return node
