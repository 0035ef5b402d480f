"""Reads Python sources as the architecture test sees them: modules, what they import, and the dotted names they use."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("compiler", "reference", "harness", "suites")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One module by its dotted name."""

    name: str
    tree: ast.Module
    is_package: bool

    @property
    def package(self) -> str:
        """The dotted name that a relative import of one dot starts from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Import:
    """`target` is the dotted name of what is imported: a module, or a name within one. Locally it is `alias`, which
    stands for `bound`: after `import torch._C` the name `torch` stands for `torch`."""

    target: str
    alias: str
    bound: str
    line: int


@dataclass(frozen=True, slots=True)
class Use:
    """A dotted name that a source mentions in code: by import, by attribute, or by a string."""

    name: str
    line: int


def parse(name: str, text: str, is_package: bool = False) -> Source:
    return Source(name, ast.parse(text), is_package)


def read_sources() -> dict[str, Source]:
    """Every module of the four packages."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {source.name: source for source in map(_read, files)}


def _read(path: Path) -> Source:
    parts = path.relative_to(ROOT).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return parse(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package)


def imports(source: Source, within: ast.AST | None = None) -> Iterator[Import]:
    """Every import of a source, at its top or anywhere inside; only those `within` a node if one is given."""
    for node in ast.walk(within or source.tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(_own(name.name), *_binding(name), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(source, node)
            for name in node.names:
                target = _own(f"{module}.{name.name}" if name.name != "*" else module)
                yield Import(target, name.asname or name.name, target, node.lineno)


def _own(name: str) -> str:
    """A module of ours by its place in the checkout: `compiler.options` for `assay.compiler.options`."""
    return name.removeprefix("assay.")


def _binding(name: ast.alias) -> tuple[str, str]:
    first = name.name.partition(".")[0]
    return (name.asname, _own(name.name)) if name.asname else (first, first)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = source.package.split(".")
    return ".".join([*above[: len(above) - node.level + 1], *filter(None, [node.module])])


def uses(source: Source) -> Iterator[Use]:
    """Every dotted name that a source imports, reaches by attributes, or spells in a string that is no docstring."""
    bound = {each.alias: each.bound for each in imports(source)}
    said = _docstrings(source.tree)
    for each in imports(source):
        yield Use(each.target, each.line)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield Use(node.value, node.lineno)
        elif isinstance(node, ast.Attribute | ast.Call) and (name := dotted(node, bound)):
            yield Use(name, node.lineno)


def dotted(node: ast.AST, bound: Mapping[str, str]) -> str:
    """`torch._C.x`, `getattr(torch._C, "x")` or `import_module(".x", "torch._C")` as a dotted name; "" for the rest."""
    match node:
        case ast.Name(id=name):
            return bound.get(name, name)
        case ast.Attribute(value=value, attr=attribute):
            owner = dotted(value, bound)
            return f"{owner}.{attribute}" if owner else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]):
            owner = dotted(value, bound)
            return f"{owner}.{attribute}" if owner else ""
        case ast.Call(args=[ast.Constant(value=str(name)), ast.Constant(value=str(package))]) if name.startswith("."):
            return package + name
    return ""


def _docstrings(tree: ast.Module) -> set[int]:
    """The strings that stand alone as a statement, by identity."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def functions(source: Source) -> Iterator[Function]:
    return (node for node in ast.walk(source.tree) if isinstance(node, Function))


def is_under(name: str, module: str) -> bool:
    """Whether a dotted name is that module or something in it."""
    return name == module or name.startswith(module + ".")
