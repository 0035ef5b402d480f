"""Facts that are read off the compiler: its options, passes, counts, and what it refuses or leaves to ATen."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from unittest import mock

import assay.compiler.options as options_module
import assay.compiler.passes as passes_module
from assay import compiler
from assay.compiler import journal
from assay.compiler.errors import BANS, Unsupported
from assay.compiler.ops import library
from assay.compiler.options import MODES, Options
from assay.compiler.passes import CHOICES, FUNCTIONAL, PASSES, Pass
from assay.suites.tables.markdown import bullets, capitalized, literal, table

FOLDER = Path(compiler.__file__).parent
VARIABLE = re.compile(r"(ASSAY_\w+)=(\S+) +(.*)")
REASON = re.compile(r"Pass\((\w+), [^)]*\),?  # (.*)")
"""A line of the list of passes."""
SHORTEST = 12
"""A message with fewer fixed characters says nothing without its facts."""


def options() -> str:
    """Every option with its default and its docstring."""
    defaults, variables = _defaults(), {name for name, _, _ in _variables()}
    rows = (
        (literal(name), _default(defaults[name]), literal(variable) if variable in variables else "", text)
        for name, text in _attribute_docstrings(options_module, Options).items()
        if (variable := f"ASSAY_{name.upper()}")
    )
    return table(("option", "default", "variable", "what it does"), rows)


def _defaults() -> Mapping[str, object]:
    """The options as they are where the environment sets none."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    with mock.patch.dict(os.environ, plain, clear=True):
        made = Options()
    return {name: getattr(made, name) for name in Options.__dataclass_fields__}


def _default(value: object) -> str:
    return literal(repr(value).replace(str(Path.home()), "~")) if value != "" else "none"


def modes() -> str:
    """The modes of `torch.compile`, and the options that each stands for."""
    rows = (
        (literal(name), literal(repr(stands_for)) if stands_for else "no option") for name, stands_for in MODES.items()
    )
    return table(("mode", "stands for"), rows)


def environment() -> str:
    """Every environment variable that the compiler reads."""
    return table(
        ("variable", "what it does"),
        ((literal(f"{name}={value}"), capitalized(text)) for name, value, text in _variables()),
    )


def _variables() -> list[tuple[str, str, str]]:
    return VARIABLE.findall(options_module.__doc__ or "")


def counts() -> str:
    """What `totals()` of the journal counts."""
    text = inspect.getdoc(journal.totals) or ""
    names = ", ".join(literal(name) for name in journal.totals())
    return f"The counts are {names}.\n\n{text}"


def passes() -> str:
    """The passes in their order, each with what it does and the reason for its place in the list."""
    groups = {"always": PASSES, "with the option `functionalize_rng`": (FUNCTIONAL,), "in graphs built here": CHOICES}
    reasons = _reasons(inspect.getsource(passes_module))
    rows = (
        (literal(step.name), step.kind, when, first_line(step), capitalized(reasons.get(step.name, "")))
        for when, steps in groups.items()
        for step in steps
    )
    return table(("pass", "kind", "when", "what it does", "why"), rows)


def first_line(step: Pass) -> str:
    """The first paragraph about a pass, of the module that is named after it."""
    return (inspect.getdoc(inspect.getmodule(step.run)) or "").partition("\n\n")[0]


def _reasons(source: str) -> Mapping[str, str]:
    """The comment behind each pass of the list."""
    return dict(REASON.findall(source))


def called_operators() -> str:
    """The operators that ATen always runs, group by group, with the reason."""
    return table(("operators", "why they are not generated"), _groups(library))


def _groups(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The calls of `left(...)`, with the string that follows the last of each group."""
    names: list[str] = []
    for node in ast.parse(inspect.getsource(module)).body:
        match node:
            case ast.Expr(value=ast.Call(args=arguments)):
                names += [ast.literal_eval(argument) for argument in arguments]
            case ast.Expr(value=ast.Constant(value=str(reason))) if names:
                yield ", ".join(map(literal, " ".join(names).split())), reason
                names = []


def refusals() -> str:
    """The messages with which the compiler gives a program back to eager, as they stand in its sources."""
    found = {text for path in FOLDER.rglob("*.py") for text in _messages(ast.parse(path.read_text()))}
    return bullets(sorted(map(capitalized, found), key=str.lower))


def _messages(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=Unsupported.__name__), args=[message, *_]):
                text = _template(message)
                if len(text.replace("...", "")) >= SHORTEST and not text.startswith("..."):
                    yield text


def _template(message: ast.expr) -> str:
    """A message with `...` for each fact that is filled in."""
    if isinstance(message, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in message.values)  # type: ignore[misc]
    return message.value if isinstance(message, ast.Constant) and isinstance(message.value, str) else ""


def export_bans() -> str:
    """What no exported graph can say, with the message of each ban."""
    fact: Callable[[re.Match[str]], str] = lambda found: f"*{found[1]}*"
    return table(
        ("ban", "message"), ((literal(name), re.sub(r"\{(\w+)(?:![rs])?\}", fact, text)) for name, text in BANS.items())
    )


def _attribute_docstrings(module: ModuleType, owner: type) -> Mapping[str, str]:
    """The string under each annotated attribute of a class."""
    classes = {node.name: node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)}
    body = classes[owner.__name__].body
    return {
        attribute.target.id: inspect.cleandoc(said.value.value)
        for attribute, said in itertools.pairwise(body)
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)
        if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant) and isinstance(said.value.value, str)
    }
